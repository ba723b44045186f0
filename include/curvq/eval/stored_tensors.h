// A checkpoint as the tensors of the model that it stands for: a quantized linear layer, which a
// file holds as several tensors, counts as its one weight.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/compressed_tensors.h"

namespace curvq {

class ScriptModel;

struct StoredTensor {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> shape;
  std::optional<Scheme> scheme;          // set for a quantized layer
  std::vector<const TensorView*> parts;  // what the file holds; one for a plain tensor
  int64_t num_elements() const;
  int64_t stored_bytes() const;
  // "BF16", "Q4_K", or Scheme::describe().
  std::string format() const;
};

// The scheme that the tensors of layer `name` (without ".weight") spell, by their names, dtypes and
// shapes alone; nullopt if the layer is plain or of no layout in compressed_tensors.h.
std::optional<Scheme> infer_scheme(const Checkpoint& checkpoint, const std::string& name);

// True if `a` comes before `b` with numbers in names compared as numbers (layers.2 < layers.10).
bool natural_less(const std::string& a, const std::string& b);

// Owns the mapped checkpoint. Safe to read from several threads.
class StoredTensors {
 public:
  // `path`: a model directory, a GGUF, a bare .safetensors, or a TorchScript file, whose parameters
  // and buffers are in memory. Schemes come from config.json's quantization_config and, where that
  // does not name a layer, from infer_scheme(). Throws what Checkpoint or ScriptModel throws, and
  // FormatError for a damaged config.json.
  explicit StoredTensors(const std::string& path);

  const std::string& path() const { return path_; }
  size_t num_files() const { return script_ ? 1 : checkpoint_->num_files(); }
  // nullptr unless `path` is a TorchScript file.
  const ScriptModel* script() const;
  // Of config.json; null for a single file or a directory without one.
  const Json& config() const { return config_; }
  // Why config.json's quantization_config could not be read; empty if it could. The tensors are
  // then listed as the file holds them.
  const std::string& unread_quantization() const { return unread_quantization_; }

  // In natural order of their names.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;

  // Elements of one tensor as float32 (BOOL as 0 and 1), piece by piece; only packed weights are
  // held as a whole.
  class Reader {
   public:
    // Throws FormatError if the parts of a quantized layer do not fit together.
    Reader(const StoredTensors& tensors, const StoredTensor& tensor);
    // Elements [begin, end) in row-major order.
    void read(int64_t begin, int64_t end, float* out) const;

   private:
    const StoredTensor& tensor_;
    std::optional<QuantizedMatrix> matrix_;
  };
  // Lets the operating system take back the pages of `tensor`.
  void release(const StoredTensor& tensor) const;

 private:
  void add_script();
  void add_checkpoint();
  void add_quantized(const std::string& layer, const Scheme& scheme);

  std::string path_;
  // One of these.
  std::unique_ptr<Checkpoint> checkpoint_;
  struct Script;
  std::shared_ptr<const Script> script_;
  Json config_;
  std::optional<QuantizationConfig> quantization_;
  std::string unread_quantization_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace curvq
