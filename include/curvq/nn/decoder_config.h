// What a decoder-only transformer, or an encoder like BERT, is made of, as data. A model family is
// a table row in lib/nn/families.cc: a description that holds what a config.json of the family
// leaves unsaid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "curvq/io/checkpoint.h"
#include "curvq/io/json.h"

namespace curvq {

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu };

//   kRms         x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019)
//   kRmsPlusOne  the same with weight + 1
//   kLayer       (x - mean) / sqrt(var + epsilon) * weight + bias (Ba et al. 2016)
enum class NormKind { kRms, kRmsPlusOne, kLayer };

// Rotary position embedding (Su et al. 2021), halves rotated against each other. Frequencies are
// theta^(-2i/d); kLinear divides them by factor; kLlama3 divides those with a wavelength above
// original_max_positions / low_frequency_factor by factor, keeps those below
// original_max_positions / high_frequency_factor, and interpolates between. kYarn (Peng et al.
// 2023, section 3.2) divides those that turn less than beta_slow times within
// original_max_positions by factor, keeps those that turn more than beta_fast times, with a ramp
// between, and multiplies cosines and sines by attention_factor.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3, kYarn };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;
  int64_t original_max_positions = 8192;
  double beta_fast = 32.0, beta_slow = 1.0, attention_factor = 1.0;
  bool whole_ramp = true;  // the ramp begins and ends at whole elements
};

// Module names; empty for what a family does not have.
struct DecoderNames {
  std::string embedding = "model.embed_tokens", positions, final_norm = "model.norm",
              head = "lm_head";
  std::string token_types, embedding_norm;
  std::string blocks = "model.layers.";  // a block's number and a point follow, then these:
  std::string attention_norm = "input_layernorm", post_attention_norm;
  std::string mlp_norm = "post_attention_layernorm", post_mlp_norm;
  std::string q_norm, k_norm;
  std::string sinks;            // a tensor's name
  std::string router, experts;  // an expert's number and a point follow, then gate_up and down
  std::vector<std::string> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::string o = "self_attn.o_proj";
  std::vector<std::string> gate_up = {"mlp.gate_proj", "mlp.up_proj"};
  std::string down = "mlp.down_proj";

  std::string block(int64_t layer) const { return blocks + std::to_string(layer) + "."; }
  std::string mlp(int64_t layer, int64_t expert) const {
    return block(layer) + (experts.empty() ? "" : experts + std::to_string(expert) + ".");
  }
};

// See DecoderBlock for what is computed.
struct DecoderConfig {
  std::string family;  // config.json's model_type
  DecoderNames names;
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, max_positions = 0;
  NormKind norm = NormKind::kRms;
  double norm_epsilon = 1e-6;
  Activation activation = Activation::kSilu;
  bool gated = true;  // down(act(gate(x)) * up(x)), else down(act(up(x)))
  bool qkv_bias = false, o_bias = false, mlp_bias = false, tied_embeddings = false;
  bool qkv_by_head = false;  // fused rows are (q, k, v) of a head, then those of the next
  int64_t num_experts = 0, experts_per_token = 0;  // 0: one mlp for all tokens
  bool normalized_routes = true;                   // an expert's share is of those chosen
  bool router_bias = false;
  // Instead of the activation; see DecoderBlock; a limit of 0: none.
  double swiglu_limit = 0, swiglu_alpha = 1.702;
  bool whole_qk_norm = false;       // q_norm and k_norm are over all heads together
  bool transposed_weights = false;  // of blocks' linear layers, stored [in, out] unless quantized
  bool parallel_residual = false;   // attention and mlp read the same x
  bool norm_of_sum = false;  // the norms behind attention and mlp are of x and what is added to it
  bool bidirectional = false;  // an encoder: tokens see those behind them, too, and no head follows
  int64_t num_token_types = 0;  // rows of their table; all tokens are of the first

  int64_t rope_dim = 0;  // leading elements of each head that are rotated; 0: no rope
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;  // of layers with a sliding window, where it differs
  std::vector<int64_t> windows;  // by layer, positions that a token sees; 0 or no entry: all
  int64_t position_offset = 0;   // row of the first position in a learned table

  double embedding_scale = 1, residual_scale = 1;
  double attention_scale = 0;    // of q k^T; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // c tanh(scores / c); 0: none
  double logits_scale = 1, logits_softcap = 0;

  std::vector<int32_t> bos_ids, eos_ids;  // from config.json, generation_config.json overriding

  int64_t num_mlps() const { return num_experts > 0 ? num_experts : 1; }
  int64_t window(int64_t layer) const {
    return layer < static_cast<int64_t>(windows.size()) ? windows[layer] : 0;
  }

  // Throws UnsupportedError for an encoder, which has no next token; `what` wants one.
  void require_head(const std::string& what) const;

  // Reads and checks config.json (and generation_config.json) of a model directory, or what the
  // metadata of a GGUF says in their place. Throws
  // FormatError for missing keys, wrong types or absurd values (naming key and value),
  // UnsupportedError for a family or setting that is not handled, naming those that are.
  static DecoderConfig from_directory(const std::string& directory);
};

// One linear layer of a decoder block: `name` is the module's full name, its weight is name.weight
// [out_features, in_features] (see DecoderConfig::transposed_weights), its bias (if has_bias)
// name.bias [out_features].
struct LinearInfo {
  std::string name;
  int64_t in_features = 0, out_features = 0;
  bool has_bias = false;
};

// Linear layers of block `layer`, in groups that read the same input: {q, k, v} or {qkv}; {o};
// {gate, up}, {gate_up} or {up}; {down}; of experts the last two for each. Loaders fuse the layers
// of a group.
std::vector<std::vector<LinearInfo>> block_linears(const DecoderConfig& config, int64_t layer);

// A norm's tensors: name.weight and, of kLayer, name.bias, [size]; nothing without a name.
std::vector<TensorInfo> norm_tensors(const DecoderConfig& config, const std::string& name,
                                     int64_t size);

// The tensors that an unquantized checkpoint of this config must have, with their shapes (dtype is
// not prescribed).
std::vector<TensorInfo> expected_tensors(const DecoderConfig& config);

// True for model directories whose family from_directory() handles.
bool is_known_family(const std::string& model_type);
std::vector<std::string> known_families();

// Names of layers that loaders fuse and that therefore share one NVFP4 tensor scale, found by
// their names alone ("...q_proj", "...k_proj", "...v_proj"; "...gate_proj", "...up_proj"): maps
// each name to a key that is equal for layers of one group.
std::string fused_group_key(const std::string& linear_name);

}  // namespace curvq
