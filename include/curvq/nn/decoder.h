// A decoder-only transformer (or an encoder) on LibTorch tensors, block by block.
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

// y = round(x) W^T + b, W dense float32 or packed.
struct Linear {
  LinearInfo info;
  torch::Tensor weight;                           // [out, in]; undefined when packed
  std::optional<PrepackedWeight> prepacked;       // set when packed, to run it
  std::shared_ptr<const QuantizedMatrix> packed;  // or with rounded inputs, to calibrate behind it
  // What inputs are rounded to, where it can: those of `packed`, and of `prepacked`.
  Activations activations = Activations::kFloat32;
  InputRounding rounding = InputRounding::kNone;
  // What its format rounds inputs to before that (see round_inputs()); gradients pass as if it did
  // not.
  InputFormat inputs = InputFormat::kNone;
  float input_scale = 0;
  torch::Tensor bias;  // [out] or undefined
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

// y of norm, over the last dimension; without a weight x itself.
struct Norm {
  NormKind kind = NormKind::kRms;
  double epsilon = 0;
  std::string name;            // the module's full name
  torch::Tensor weight, bias;  // [size]; bias of NormKind::kLayer only

  torch::Tensor forward(const torch::Tensor& x) const;
};

// Tokens on their way through a block; see DecoderBlock::advance().
struct BlockState {
  torch::Tensor x;       // the residual stream, [n, t, hidden]; replaced where the block adds to it
  torch::Tensor input;   // of the linear layers of a group, [n, t, in]
  torch::Tensor sum;     // of what experts gave so far, [n, t, hidden]
  torch::Tensor shares;  // of experts, [n, t, experts], 0 where a token does not come to one
  // Of the n t tokens those that come to the group's layers, int64, ascending; undefined: all.
  torch::Tensor tokens;
};

// x' = x + r post_attention_norm(attention(attention_norm(x))), then
//      x' + r post_mlp_norm(mlp(mlp_norm(x'))), r = residual_scale;
// with parallel_residual the mlp reads x; with norm_of_sum x' = norm(x + attention(x)), and so on.
//   attention  o(softmax(cap(s q k^T), causal unless bidirectional, sliding window) v), grouped
//              query heads; norms and RoPE on q and k; with sinks, softmax has one more score for
//              each head, the same for all tokens, whose value is zero
//   mlp        down(act(gate(x)) * up(x)), or down(act(up(x))); with a limit l for the middle
//              g sigmoid(alpha g) (u + 1), g = min(gate(x), l), u = max(-l, min(up(x), l)); of
//              experts, the sum over those chosen for a token, the experts_per_token largest of
//              softmax(router x), by their shares
// The linear layers come in the groups of block_linears(); each group's input can be captured and
// its layers replaced before their output is used. An expert runs on the tokens that come to it
// only, and its inputs are zeros for the others; what experts give is added up in their order.
struct DecoderBlock {
  DecoderConfig config;
  int64_t layer = 0;
  int64_t window = 0;  // positions that a token sees; 0: all
  RopeConfig rope;
  Norm attention_norm, post_attention_norm, mlp_norm, post_mlp_norm, q_norm, k_norm;
  std::vector<Linear> qkv;
  torch::Tensor sinks;  // [heads], or undefined
  Linear o;
  struct Mlp {
    std::vector<Linear> gate_up;
    Linear down;
  };
  std::vector<Mlp> mlps;      // one, or the experts
  torch::Tensor router;       // [experts, hidden], or undefined
  torch::Tensor router_bias;  // [experts], or undefined

  size_t num_groups() const { return 2 + 2 * mlps.size(); }
  // One step on: from the input of the layers of `group` - 1 to that of `group`. Group num_groups()
  // leaves the block's output in x. With a cache (n = 1), positions continue it.
  void advance(size_t group, BlockState& state, KeyValueCache* cache = nullptr) const;

  torch::Tensor forward(const torch::Tensor& x, KeyValueCache* cache = nullptr) const;

  // The layers in the order of block_linears(), for loops over all of them.
  std::vector<std::vector<Linear*>> linears();

 private:
  torch::Tensor attention_heads(const torch::Tensor& normed, KeyValueCache* cache) const;
  torch::Tensor activated(const std::vector<Linear>& gate_up, const torch::Tensor& normed) const;
  void add_attention(BlockState& state) const;
  // Of experts; see lib/nn/experts.cc.
  torch::Tensor shares(const torch::Tensor& normed) const;
  void advance_experts(size_t group, BlockState& state) const;
  void run_experts(BlockState& state) const;
  torch::Tensor expert_activated(size_t expert, const torch::Tensor& rows,
                                 const torch::Tensor& tokens) const;
  void add_expert(size_t expert, const torch::Tensor& rows, const torch::Tensor& tokens,
                  const torch::Tensor& shares, torch::Tensor sum) const;
  void add_experts(BlockState& state) const;
};

// x [n, t, width] of `tokens` (see BlockState), [m, width], and back, zeros for the others.
torch::Tensor rows_of_tokens(const torch::Tensor& x, const torch::Tensor& tokens);
torch::Tensor spread_rows(const torch::Tensor& rows, const torch::Tensor& tokens, int64_t n,
                          int64_t t);

// Whether packed layers run from their packed weights, with inputs as they are, in bfloat16, or, to
// weights of 4 bits, as integers of 15 or 8 bits (see InputRounding), or are dequantized to float32
// at load.
enum class Engine { kPacked, kDequantized, kPackedBF16, kPackedA15, kPackedA8 };
// By name, see engine_names().
Engine parse_engine(const std::string& name);
// packed, packed-bf16, packed-a15, packed-a8, dequantized.
std::vector<std::string> engine_names();

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

  // ids [n, t] int64 -> [n, t, hidden], the stream ahead of the first block: embeddings, learned
  // positions, the first token type, their norm, as far as the family has them; `begin` is
  // the position of the first id. Reads only the rows that are needed.
  torch::Tensor embed(const torch::Tensor& ids, int64_t begin = 0) const;
  // Loads block `layer`. Throws NumericalError for weights that are not finite.
  DecoderBlock load_block(int64_t layer) const;
  // Lets the operating system take back the mapped weights of block `layer`.
  void release_block(int64_t layer) const;
  const Norm& final_norm() const { return final_norm_; }
  // Final norm: [..., hidden] -> [..., hidden], the input of the output head.
  torch::Tensor head_input(const torch::Tensor& hidden) const;
  // Final norm and output head: [..., hidden] -> [..., vocab]. The head is loaded at first use; for
  // one row without gradients, as when text is generated, a stored bfloat16 one stays that.
  // Throws UnsupportedError for an encoder.
  torch::Tensor logits(const torch::Tensor& hidden) const;
  // The same in two steps: the head's product, and the logits out of it, scaled and capped.
  torch::Tensor head_output(const torch::Tensor& hidden) const;
  torch::Tensor logits_of(const torch::Tensor& head_output) const;
  // Frees the output head, until logits() loads it again.
  void release_head() const { head_ = bf16_head_ = torch::Tensor(); }
  // Whether one row's head is computed from stored bfloat16.
  bool has_bf16_head() const;

  // Residual stream behind the last block for windows of ids [n, t], block after block:
  // [n, t, hidden].
  torch::Tensor hidden_states(const torch::Tensor& ids) const;

 private:
  Linear load_linear(const LinearInfo& info) const;
  Norm load_norm(const std::string& name, int64_t size) const;
  torch::Tensor load_float(const std::string& name, const std::vector<int64_t>& shape) const;
  std::string head_tensor() const;

  DecoderConfig config_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::optional<QuantizationConfig> quantization_;
  Engine engine_;
  torch::ScalarType dtype_;
  Norm final_norm_;
  // Where they are learned, [position_offset + max_positions, hidden], with the first token type.
  torch::Tensor positions_;
  Norm embedding_norm_;
  mutable torch::Tensor head_, bf16_head_;
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
