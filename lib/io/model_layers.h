// The quantized layers of a model, whatever its layout.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/convert.h"
#include "curvq/io/json.h"

namespace curvq::io {

struct ModelLayer {
  std::string name;  // without ".weight"
  Scheme scheme;
  int64_t rows = 0, cols = 0;
};

// What one layout makes of the tensors of a checkpoint.
class LayerReader {
 public:
  virtual ~LayerReader() = default;
  virtual std::vector<ModelLayer> find(const Checkpoint& checkpoint) const = 0;
  // Endings of the tensors that a layer consists of, behind its name.
  virtual std::vector<std::string> parts() const = 0;
  virtual QuantizedMatrix read(const Checkpoint& checkpoint, const ModelLayer& layer) const = 0;
};

// `quantization` is what config.json holds under "quantization_config"; `origin` names it.
std::unique_ptr<LayerReader> compressed_tensors_reader(const Json& quantization,
                                                       const std::string& origin);
std::unique_ptr<LayerReader> modelopt_reader(const Json& quantization, const std::string& origin);
std::unique_ptr<LayerReader> gptq_reader(const Json& quantization, const std::string& origin);
std::unique_ptr<LayerReader> gguf_reader(const std::string& path);

// Owns the mapped checkpoint.
class ModelLayers {
 public:
  // Throws UnsupportedError for a quant_method that is not handled.
  explicit ModelLayers(const std::string& model);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  Layout layout() const { return layout_; }
  const Json& config() const { return config_; }
  const std::vector<ModelLayer>& layers() const { return layers_; }
  // Tensors that are part of no layer, by name.
  std::vector<const TensorView*> plain() const;
  QuantizedMatrix read(const ModelLayer& layer) const { return reader_->read(checkpoint_, layer); }
  void release(const ModelLayer& layer) const;

 private:
  Checkpoint checkpoint_;
  Json config_;
  Layout layout_ = Layout::kPlain;
  std::unique_ptr<LayerReader> reader_;
  std::vector<ModelLayer> layers_;
  std::set<std::string> parts_;
};

}  // namespace curvq::io
