// A decoder-only transformer on LibTorch tensors, block by block.
//
// Everything is float32 (float64 where asked for) on the CPU. Weights stay in the mapped checkpoint
// until a block is loaded, so that work which goes block by block needs the float weights of one
// block only.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/kernels/gemm.h"
#include "curvq/kernels/linear.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {

// y = x W^T + b, W dense float32 or packed.
struct Linear {
  LinearInfo info;
  torch::Tensor weight;                           // [out, in]; undefined when packed
  std::optional<PrepackedWeight> prepacked;       // set when packed, to run it
  std::shared_ptr<const QuantizedMatrix> packed;  // or with rounded inputs, to calibrate behind it
  Activations activations = Activations::kFloat32;  // of `packed`, where it can
  torch::Tensor bias;                               // [out] or undefined
  // x W^T, [..., out], where it is known already (W dense): forward() takes it from here, its
  // gradient in x being that of the product. Undefined otherwise.
  torch::Tensor product;

  bool is_dense() const { return !prepacked && !packed; }
  // x [..., in] -> [..., out].
  torch::Tensor forward(const torch::Tensor& x) const;
};

// Keys and values of past positions of one block.
struct KeyValueCache {
  torch::Tensor keys, values;  // [num_kv_heads, capacity, head_dim]
  int64_t length = 0;
};

// x + attention(norm(x)), then x + mlp(norm(x)):
//   attention  softmax(q k^T / sqrt(head_dim), causal) v, grouped query heads, RoPE on q and k
//   mlp        down(act(gate(x)) * up(x))
// The parts between linear layers are separate functions so that each layer's input can be
// captured and the layer replaced before its output is used.
struct DecoderBlock {
  DecoderConfig config;
  torch::Tensor attention_norm, mlp_norm;  // [hidden]
  Linear q, k, v, o, gate, up, down;

  // x [n, t, hidden]; each returns the input of the linear layers named.
  torch::Tensor qkv_input(const torch::Tensor& x) const;
  // From qkv_input's result: [n, t, heads * head_dim]. With a cache (n = 1), positions continue it.
  torch::Tensor o_input(const torch::Tensor& normed, KeyValueCache* cache = nullptr) const;
  torch::Tensor gate_up_input(const torch::Tensor& x) const;
  torch::Tensor down_input(const torch::Tensor& normed) const;

  torch::Tensor forward(const torch::Tensor& x, KeyValueCache* cache = nullptr) const;

  // The layers in the order of block_linears(), for loops over all of them.
  std::vector<std::vector<Linear*>> linears();
};

// Whether packed layers run from their packed weights or are dequantized to float32 at load.
enum class Engine { kPacked, kDequantized };

class DecoderModel {
 public:
  // Opens a model directory, original or quantized (compressed-tensors). Throws FormatError if a
  // tensor is missing, has the wrong shape, or the config and the tensors contradict each other,
  // before any weight is read.
  //   dtype  float32, or float64 for all that is computed (stored float64 weights are then taken
  //          exactly; needs Engine::kDequantized)
  explicit DecoderModel(const std::string& directory, Engine engine = Engine::kPacked,
                        torch::ScalarType dtype = torch::kFloat32);

  const DecoderConfig& config() const { return config_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const std::optional<QuantizationConfig>& quantization() const { return quantization_; }

  // ids [n, t] int64 -> [n, t, hidden]; reads only the rows that are needed.
  torch::Tensor embed(const torch::Tensor& ids) const;
  // Loads block `layer`. Throws NumericalError for weights that are not finite.
  DecoderBlock load_block(int64_t layer) const;
  // Lets the operating system take back the mapped weights of block `layer`.
  void release_block(int64_t layer) const;
  // Final norm: [..., hidden] -> [..., hidden], the input of the output head.
  torch::Tensor head_input(const torch::Tensor& hidden) const;
  // Final norm and output head: [..., hidden] -> [..., vocab]. The head is loaded at first use.
  torch::Tensor logits(const torch::Tensor& hidden) const;
  // Frees the output head, until logits() loads it again.
  void release_head() const { head_ = torch::Tensor(); }

  // Residual stream behind the last block for windows of ids [n, t], block after block:
  // [n, t, hidden].
  torch::Tensor hidden_states(const torch::Tensor& ids) const;

 private:
  Linear load_linear(const LinearInfo& info) const;
  torch::Tensor load_float(const std::string& name, const std::vector<int64_t>& shape) const;

  DecoderConfig config_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::optional<QuantizationConfig> quantization_;
  Engine engine_;
  torch::ScalarType dtype_;
  torch::Tensor final_norm_;
  mutable torch::Tensor head_;
};

// All blocks in memory with a cache of keys and values, for generation.
class DecoderSession {
 public:
  explicit DecoderSession(std::shared_ptr<const DecoderModel> model);
  // Appends ids and returns the logits [vocab] of the last position. Throws UsageError when the
  // context would exceed max_positions.
  torch::Tensor append(const std::vector<int32_t>& ids);
  int64_t length() const { return length_; }

 private:
  std::shared_ptr<const DecoderModel> model_;
  std::vector<DecoderBlock> blocks_;
  std::vector<KeyValueCache> caches_;
  int64_t length_ = 0;
};

}  // namespace curvq
