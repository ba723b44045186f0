// What a decoder-only transformer is made of, as data. A model family is a table row in
// lib/nn/decoder_config.cc that says how its config.json and tensor names fill this description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/io/checkpoint.h"
#include "curvq/io/json.h"

namespace curvq {

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu };

// Rotary position embedding (Su et al. 2021), halves rotated against each other. Frequencies are
// theta^(-2i/d); kLinear divides them by factor; kLlama3 divides those with a wavelength above
// original_max_positions / low_frequency_factor by factor, keeps those below
// original_max_positions / high_frequency_factor, and interpolates between.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3 };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;
  int64_t original_max_positions = 8192;
};

struct DecoderConfig {
  std::string family;  // config.json's model_type
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, max_positions = 0;
  double norm_epsilon = 1e-6;
  Activation activation = Activation::kSilu;
  bool attention_bias = false, mlp_bias = false, tied_embeddings = false;
  RopeConfig rope;
  std::vector<int32_t> bos_ids, eos_ids;  // from config.json, generation_config.json overriding

  // Reads and checks config.json (and generation_config.json) of a model directory, or what the
  // metadata of a GGUF says in their place. Throws
  // FormatError for missing keys, wrong types or absurd values (naming key and value),
  // UnsupportedError for a family or setting that is not handled, naming those that are.
  static DecoderConfig from_directory(const std::string& directory);
};

// One linear layer of a decoder block: `name` is the module's full name, its weight is name.weight
// [out_features, in_features], its bias (if has_bias) name.bias [out_features].
struct LinearInfo {
  std::string name;
  int64_t in_features = 0, out_features = 0;
  bool has_bias = false;
};

// Linear layers of block `layer`, in groups that read the same input: {q, k, v}, {o}, {gate, up},
// {down}. Loaders fuse the layers of a group.
std::vector<std::vector<LinearInfo>> block_linears(const DecoderConfig& config, int64_t layer);

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
