// Where a conversion writes to: a model directory in one of the layouts, or a GGUF.
#pragma once

#include <memory>

#include "curvq/io/convert.h"
#include "io/model_layers.h"

namespace curvq::io {

class ConvertTarget {
 public:
  virtual ~ConvertTarget() = default;
  // Looks at everything that is to come, before anything is written. `plain` has dtypes as they
  // will be stored. Throws UnsupportedError for what the layout cannot hold.
  virtual void plan(const std::vector<ModelLayer>& layers,
                    const std::vector<TensorInfo>& plain) = 0;
  // Bytes of all tensors, and their number.
  virtual int64_t stored_bytes() const = 0;
  virtual int64_t num_tensors() const = 0;
  // `path`: a directory that exists, or the file.
  virtual void open(const std::string& path) = 0;
  virtual void write(const ModelLayer& layer, const QuantizedMatrix& matrix) = 0;
  virtual void write(const TensorInfo& tensor, const std::vector<std::byte>& data) = 0;
  virtual void finish() = 0;
};

std::unique_ptr<ConvertTarget> directory_target(const std::string& model,
                                                const ConvertOptions& options);
std::unique_ptr<ConvertTarget> gguf_target(const ModelLayers& source, const std::string& model);

}  // namespace curvq::io
