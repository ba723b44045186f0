#include "curvq/nn/decoder_config.h"

#include <algorithm>
#include <map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/model_files.h"

namespace curvq {
namespace {

// What a family's config.json leaves unsaid.
struct Family {
  const char* model_type;
  double norm_epsilon;
  const char* activation;
  bool attention_bias, mlp_bias, tied_embeddings;
};

constexpr Family kFamilies[] = {
    {"llama", 1e-6, "silu", false, false, false},
};

const Family* find_family(const std::string& model_type) {
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

Activation parse_activation(const std::string& name, const std::string& origin) {
  static const std::map<std::string, Activation> kNames = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu}};
  const auto it = kNames.find(name);
  if (it == kNames.end()) {
    throw UnsupportedError(
        origin + ": hidden_act \"" + name +
        "\" is not handled; handled are silu, gelu, gelu_new, gelu_pytorch_tanh, relu");
  }
  return it->second;
}

int64_t bounded(const Json& json, const char* key, int64_t low, int64_t high,
                const std::string& origin) {
  const int64_t value = json_int(json, key, origin);
  if (value < low || value > high) {
    throw FormatError(format("%s: %s is %lld, it must be between %lld and %lld", origin.c_str(),
                             key, static_cast<long long>(value), static_cast<long long>(low),
                             static_cast<long long>(high)));
  }
  return value;
}

double positive(const Json& json, const char* key, double fallback, const std::string& origin) {
  const double value = json_number(json, key, fallback, origin);
  if (!(value > 0) || value > 1e12) {
    throw FormatError(
        format("%s: %s is %g, it must be positive and below 1e12", origin.c_str(), key, value));
  }
  return value;
}

// Older configs have rope_theta and rope_scaling beside each other, newer ones one rope_parameters.
RopeConfig parse_rope(const Json& json, int64_t max_positions, const std::string& origin) {
  RopeConfig rope;
  Json scaling = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (json.contains(key) && !json[key].is_null()) {
      if (!json[key].is_object()) throw FormatError(origin + ": " + key + " is not an object");
      scaling.update(json[key]);
    }
  }
  rope.theta =
      positive(scaling.contains("rope_theta") ? scaling : json, "rope_theta", 10000.0, origin);
  if (json_number(json, "partial_rotary_factor", 1.0, origin) != 1.0) {
    throw UnsupportedError(origin + ": partial_rotary_factor other than 1 is not handled");
  }
  const std::string type =
      json_string(scaling, "rope_type", json_string(scaling, "type", "default", origin), origin);
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3") {
    throw UnsupportedError(origin + ": rope scaling \"" + type +
                           "\" is not handled; handled are default, linear, llama3");
  }
  rope.factor = positive(scaling, "factor", 1.0, origin);
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    return rope;
  }
  rope.scaling = RopeConfig::Scaling::kLlama3;
  rope.low_frequency_factor = positive(scaling, "low_freq_factor", 1.0, origin);
  rope.high_frequency_factor = positive(scaling, "high_freq_factor", 4.0, origin);
  rope.original_max_positions =
      json_int(scaling, "original_max_position_embeddings", max_positions, origin);
  if (rope.high_frequency_factor <= rope.low_frequency_factor || rope.original_max_positions < 1) {
    throw FormatError(
        format("%s: llama3 rope scaling wants high_freq_factor (%g) above low_freq_factor (%g)",
               origin.c_str(), rope.high_frequency_factor, rope.low_frequency_factor));
  }
  return rope;
}

std::vector<int32_t> parse_ids(const Json& json, const char* key, const std::string& origin) {
  std::vector<int32_t> ids;
  if (!json.contains(key) || json[key].is_null()) return ids;
  const Json list = json[key].is_array() ? json[key] : Json::array({json[key]});
  for (const Json& id : list) {
    if (!id.is_number_integer())
      throw FormatError(origin + ": " + key + " holds something that is not an integer");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

bool is_known_family(const std::string& model_type) { return find_family(model_type) != nullptr; }

std::vector<std::string> known_families() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  return names;
}

DecoderConfig DecoderConfig::from_directory(const std::string& directory) {
  const std::string path = model_file_origin(directory, "config.json");
  const Json json = read_model_config(directory);
  DecoderConfig config;
  config.family = json_string(json, "model_type", "", path);
  const Family* family = find_family(config.family);
  if (family == nullptr) {
    throw UnsupportedError(path + ": model_type \"" + config.family +
                           "\" is not handled; handled are " + join(known_families()));
  }
  constexpr int64_t kHuge = int64_t{1} << 24;
  config.vocab_size = bounded(json, "vocab_size", 1, kHuge, path);
  config.hidden_size = bounded(json, "hidden_size", 1, kHuge, path);
  config.intermediate_size = bounded(json, "intermediate_size", 1, kHuge, path);
  config.num_layers = bounded(json, "num_hidden_layers", 1, 10000, path);
  config.num_heads = bounded(json, "num_attention_heads", 1, 65536, path);
  config.num_kv_heads = json_int(json, "num_key_value_heads", config.num_heads, path);
  config.head_dim = json_int(json, "head_dim", config.hidden_size / config.num_heads, path);
  config.max_positions = json_int(json, "max_position_embeddings", 2048, path);
  if (config.num_kv_heads < 1 || config.num_heads % config.num_kv_heads != 0) {
    throw FormatError(format(
        "%s: num_key_value_heads %lld does not divide num_attention_heads %lld", path.c_str(),
        static_cast<long long>(config.num_kv_heads), static_cast<long long>(config.num_heads)));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > 65536) {
    throw FormatError(format("%s: head_dim is %lld, it must be even and between 2 and 65536",
                             path.c_str(), static_cast<long long>(config.head_dim)));
  }
  if (config.max_positions < 1 || config.max_positions > (int64_t{1} << 31)) {
    throw FormatError(format("%s: max_position_embeddings is %lld, it must be at least 1",
                             path.c_str(), static_cast<long long>(config.max_positions)));
  }
  config.norm_epsilon = positive(json, "rms_norm_eps", family->norm_epsilon, path);
  config.activation =
      parse_activation(json_string(json, "hidden_act", family->activation, path), path);
  config.attention_bias = json_bool(json, "attention_bias", family->attention_bias, path);
  config.mlp_bias = json_bool(json, "mlp_bias", family->mlp_bias, path);
  config.tied_embeddings = json_bool(json, "tie_word_embeddings", family->tied_embeddings, path);
  config.rope = parse_rope(json, config.max_positions, path);
  config.bos_ids = parse_ids(json, "bos_token_id", path);
  config.eos_ids = parse_ids(json, "eos_token_id", path);
  if (const auto text = read_model_file(directory, "generation_config.json")) {
    const std::string generation = model_file_origin(directory, "generation_config.json");
    const Json other = parse_json(*text, generation);
    if (const auto ids = parse_ids(other, "bos_token_id", generation); !ids.empty())
      config.bos_ids = ids;
    if (const auto ids = parse_ids(other, "eos_token_id", generation); !ids.empty())
      config.eos_ids = ids;
  }
  return config;
}

std::vector<std::vector<LinearInfo>> block_linears(const DecoderConfig& c, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const auto attention = [&](const char* name, int64_t in, int64_t out) {
    return LinearInfo{prefix + "self_attn." + name, in, out, c.attention_bias};
  };
  const auto mlp = [&](const char* name, int64_t in, int64_t out) {
    return LinearInfo{prefix + "mlp." + name, in, out, c.mlp_bias};
  };
  return {{attention("q_proj", c.hidden_size, q), attention("k_proj", c.hidden_size, kv),
           attention("v_proj", c.hidden_size, kv)},
          {attention("o_proj", q, c.hidden_size)},
          {mlp("gate_proj", c.hidden_size, c.intermediate_size),
           mlp("up_proj", c.hidden_size, c.intermediate_size)},
          {mlp("down_proj", c.intermediate_size, c.hidden_size)}};
}

std::vector<TensorInfo> expected_tensors(const DecoderConfig& c) {
  std::vector<TensorInfo> out;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    TensorInfo info;
    info.name = name;
    info.shape = std::move(shape);
    out.push_back(info);
  };
  add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm.weight", {c.hidden_size});
    add(prefix + "post_attention_layernorm.weight", {c.hidden_size});
    for (const auto& group : block_linears(c, layer)) {
      for (const LinearInfo& linear : group) {
        add(linear.name + ".weight", {linear.out_features, linear.in_features});
        if (linear.has_bias) add(linear.name + ".bias", {linear.out_features});
      }
    }
  }
  add("model.norm.weight", {c.hidden_size});
  if (!c.tied_embeddings) add("lm_head.weight", {c.vocab_size, c.hidden_size});
  return out;
}

std::string fused_group_key(const std::string& linear_name) {
  static const std::map<std::string, std::string> kFused = {
      {"q_proj", "qkv"},        {"k_proj", "qkv"},      {"v_proj", "qkv"},
      {"gate_proj", "gate_up"}, {"up_proj", "gate_up"}, {"w1", "w1_w3"},
      {"w3", "w1_w3"},          {"q_a_proj", "qkv_a"},  {"kv_a_proj_with_mqa", "qkv_a"}};
  const size_t dot = linear_name.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : linear_name.substr(0, dot + 1);
  const auto it = kFused.find(linear_name.substr(parent.size()));
  return it == kFused.end() ? linear_name : parent + it->second;
}

}  // namespace curvq
