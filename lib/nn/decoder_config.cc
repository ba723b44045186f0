#include "curvq/nn/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/model_files.h"
#include "nn/families.h"

namespace curvq {
namespace {

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

bool says(const Json& json, const char* key) { return json.contains(key) && !json[key].is_null(); }

// The first of these names that `json` has a value for, else the first: families spell the same
// thing differently.
using Spellings = std::vector<const char*>;
const char* spelling(const Json& json, const Spellings& names) {
  const auto it =
      std::find_if(names.begin(), names.end(), [&](const char* name) { return says(json, name); });
  return it == names.end() ? names.front() : *it;
}

// What config.json says of the rope of layers of `layer_type`. Older configs have rope_theta and
// rope_scaling beside each other, newer ones one rope_parameters, by layer type where types differ.
Json rope_settings(const Json& json, const char* layer_type, const std::string& origin) {
  Json settings = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!says(json, key)) continue;
    const Json& found = json[key];
    if (!found.is_object()) throw FormatError(origin + ": " + key + " is not an object");
    const bool by_type = found.contains(layer_type) && found[layer_type].is_object();
    settings.update(by_type ? found[layer_type] : found);
  }
  return settings;
}

double rotated_share(const Json& json, const Json& settings, const std::string& origin) {
  const Spellings names = {"partial_rotary_factor", "rotary_pct"};
  const Json& object = settings.contains(names[0]) ? settings : json;
  const double share = json_number(object, spelling(object, names), 1.0, origin);
  if (share > 0 && share <= 1) return share;
  throw FormatError(
      format("%s: %s is %g, it must be above 0 and at most 1", origin.c_str(), names[0], share));
}

void read_yarn(const Json& scaling, int64_t max_positions, const std::string& origin,
               RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.original_max_positions =
      json_int(scaling, "original_max_position_embeddings", max_positions, origin);
  if (!says(scaling, "factor") && rope.original_max_positions > 0) {
    rope.factor =
        static_cast<double>(max_positions) / static_cast<double>(rope.original_max_positions);
  }
  rope.beta_fast = positive(scaling, "beta_fast", rope.beta_fast, origin);
  rope.beta_slow = positive(scaling, "beta_slow", rope.beta_slow, origin);
  if (rope.beta_fast <= rope.beta_slow || rope.original_max_positions < 1 || rope.theta <= 1) {
    throw FormatError(
        format("%s: yarn rope scaling wants beta_fast (%g) above beta_slow (%g), rope_theta (%g) "
               "above 1 and original_max_position_embeddings (%lld) of at least 1",
               origin.c_str(), rope.beta_fast, rope.beta_slow, rope.theta,
               static_cast<long long>(rope.original_max_positions)));
  }
  rope.whole_ramp = json_bool(scaling, "truncate", true, origin);
  const auto growth = [&](double weight) {
    return rope.factor <= 1 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1.0;
  };
  const bool weighted = says(scaling, "mscale") && says(scaling, "mscale_all_dim");
  const double usual = weighted ? growth(json_number(scaling, "mscale", 1, origin)) /
                                      growth(json_number(scaling, "mscale_all_dim", 1, origin))
                                : growth(1);  // the paper's
  rope.attention_factor = positive(scaling, "attention_factor", usual, origin);
}

RopeConfig parse_rope(const Json& scaling, double theta, int64_t max_positions,
                      const std::string& origin) {
  RopeConfig rope;
  rope.theta = positive(scaling, "rope_theta", theta, origin);
  const std::string type =
      json_string(scaling, "rope_type", json_string(scaling, "type", "default", origin), origin);
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3" && type != "yarn") {
    throw UnsupportedError(origin + ": rope scaling \"" + type +
                           "\" is not handled; handled are default, linear, llama3, yarn");
  }
  rope.factor = positive(scaling, "factor", 1.0, origin);
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    return rope;
  }
  if (type == "yarn") {
    read_yarn(scaling, max_positions, origin, rope);
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
  if (!says(json, key)) return ids;
  const Json list = json[key].is_array() ? json[key] : Json::array({json[key]});
  for (const Json& id : list) {
    if (!id.is_number_integer())
      throw FormatError(origin + ": " + key + " holds something that is not an integer");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// Settings that change what is computed, with the only value that is handled.
void check_fixed_settings(const Json& json, const std::string& origin) {
  const std::pair<const char*, bool> kFixed[] = {
      {"do_layer_norm_before", true}, {"_remove_final_layer_norm", false},
      {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false}, {"use_bidirectional_attention", false},
      {"is_decoder", false}};
  for (const auto& [key, value] : kFixed) {
    if (json_bool(json, key, value, origin) != value)
      throw UnsupportedError(origin + ": " + key + " is " + (value ? "false" : "true") +
                             ", which is not handled");
  }
}

std::vector<int64_t> sliding_windows(const Json& json, const Family& family, int64_t num_layers,
                                     const std::string& origin) {
  const int64_t window = json_int(json, "sliding_window", 0, origin);
  if (window < 0)
    throw FormatError(format("%s: sliding_window is %lld, it must be at least 1", origin.c_str(),
                             static_cast<long long>(window)));
  const bool upper = family.sliding == SlidingLayers::kUpper;
  if (window == 0 || family.sliding == SlidingLayers::kNone ||
      (upper && !json_bool(json, "use_sliding_window", false, origin)))
    return {};
  if (family.sliding == SlidingLayers::kAll) return std::vector<int64_t>(num_layers, window);
  const Json types = json.value("layer_types", Json());
  if (!types.is_null() && (!types.is_array() || types.size() != static_cast<size_t>(num_layers)))
    throw FormatError(format("%s: layer_types is not a list of num_hidden_layers %lld names",
                             origin.c_str(), static_cast<long long>(num_layers)));
  const int64_t pattern = json_int(json, "sliding_window_pattern", family.sliding_pattern, origin);
  const int64_t first = json_int(json, "max_window_layers", 0, origin);
  if (!upper && pattern < 1)
    throw FormatError(origin + ": sliding_window_pattern must be at least 1");
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < num_layers; ++i) {
    bool slides = upper ? i >= first : (i + 1) % pattern != 0;
    if (!types.is_null()) {
      slides = types[i] == "sliding_attention";
      if (!slides && types[i] != "full_attention")
        throw UnsupportedError(origin + ": layer_types holds " + types[i].dump() +
                               ", handled are full_attention, sliding_attention");
    }
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

// Sizes that all families have.
void read_sizes(const Json& json, const Family& family, const std::string& path,
                DecoderConfig& config) {
  constexpr int64_t kHuge = int64_t{1} << 24;
  const auto size = [&](const Spellings& names, int64_t high) {
    return bounded(json, spelling(json, names), 1, high, path);
  };
  config.vocab_size = size({"vocab_size"}, kHuge);
  config.hidden_size = size({"hidden_size", "n_embd"}, kHuge);
  const Spellings wide = says(json, "moe_intermediate_size")
                             ? Spellings{"moe_intermediate_size"}
                             : Spellings{"intermediate_size", "ffn_dim", "n_inner"};
  const bool unsaid = family.times_wide > 0 && !says(json, spelling(json, wide));
  config.intermediate_size = unsaid ? family.times_wide * config.hidden_size : size(wide, kHuge);
  config.num_layers = size({"num_hidden_layers", "n_layer"}, 10000);
  config.num_heads = size({"num_attention_heads", "n_head"}, 65536);
  config.num_kv_heads = json_int(json, "num_key_value_heads", config.num_heads, path);
  config.head_dim = json_int(json, "head_dim", config.hidden_size / config.num_heads, path);
  config.max_positions =
      json_int(json, spelling(json, {"max_position_embeddings", "n_positions"}), 2048, path);
  if (config.num_kv_heads < 1 || config.num_heads % config.num_kv_heads != 0) {
    throw FormatError(format(
        "%s: num_key_value_heads %lld does not divide num_attention_heads %lld", path.c_str(),
        static_cast<long long>(config.num_kv_heads), static_cast<long long>(config.num_heads)));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > 65536) {
    throw FormatError(format("%s: head_dim is %lld, it must be even and between 2 and 65536",
                             path.c_str(), static_cast<long long>(config.head_dim)));
  }
  if (config.qkv_by_head && config.num_kv_heads != config.num_heads)
    throw UnsupportedError(path + ": num_key_value_heads below num_attention_heads is not handled");
  if (config.max_positions < 1 || config.max_positions > (int64_t{1} << 31)) {
    throw FormatError(format("%s: max_position_embeddings is %lld, it must be at least 1",
                             path.c_str(), static_cast<long long>(config.max_positions)));
  }
  if (json_int(json, "word_embed_proj_dim", config.hidden_size, path) != config.hidden_size)
    throw UnsupportedError(path + ": word_embed_proj_dim other than hidden_size is not handled");
}

void read_experts(const Json& json, const std::string& path, DecoderConfig& config) {
  if (config.names.router.empty()) return;
  const char* count = spelling(json, {"num_local_experts", "num_experts"});
  config.num_experts = bounded(json, count, 1, 4096, path);
  const char* chosen = spelling(json, {"num_experts_per_tok", "experts_per_token"});
  config.experts_per_token = bounded(json, chosen, 1, config.num_experts, path);
  config.normalized_routes = json_bool(json, "norm_topk_prob", config.normalized_routes, path);
  const bool dense = says(json, "mlp_only_layers") && !json["mlp_only_layers"].empty();
  if (dense || json_int(json, "decoder_sparse_step", 1, path) != 1)
    throw UnsupportedError(path +
                           ": layers without experts beside those with (mlp_only_layers, "
                           "decoder_sparse_step) are not handled");
}

// What scales and caps what is computed.
void read_scales(const Json& json, const Family& family, const std::string& path,
                 DecoderConfig& config) {
  if (family.scales_embeddings)
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.embedding_scale = positive(json, "embedding_multiplier", config.embedding_scale, path);
  config.residual_scale = positive(json, "residual_multiplier", config.residual_scale, path);
  config.logits_scale = 1 / positive(json, "logits_scaling", 1, path);
  const auto optional = [&](const char* key) {
    return says(json, key) ? positive(json, key, 1, path) : 0.0;
  };
  config.attention_scale = optional("attention_multiplier");
  if (const double scalar = optional("query_pre_attn_scalar"); scalar > 0)
    config.attention_scale = 1 / std::sqrt(scalar);
  config.attention_softcap = optional("attn_logit_softcapping");
  config.logits_softcap = optional("final_logit_softcapping");
  if (config.swiglu_limit > 0) {
    config.swiglu_limit = positive(json, "swiglu_limit", config.swiglu_limit, path);
    config.swiglu_alpha = positive(json, "swiglu_alpha", config.swiglu_alpha, path);
  }
}

void read_rope(const Json& json, const std::string& path, DecoderConfig& config) {
  const Json settings = rope_settings(json, "full_attention", path);
  const double theta =
      positive(json, spelling(json, {"rope_theta", "rotary_emb_base"}), config.rope.theta, path);
  config.rope = parse_rope(settings, theta, config.max_positions, path);
  config.rope_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) *
                                         rotated_share(json, settings, path));
  if (config.rope_dim < 2 || config.rope_dim % 2 != 0)
    throw UnsupportedError(
        format("%s: partial_rotary_factor leaves %lld of a head's elements to "
               "rotate, which must be an even number",
               path.c_str(), static_cast<long long>(config.rope_dim)));
  if (!config.local_rope) return;
  const bool by_type = says(json, "rope_parameters") && json["rope_parameters"].is_object() &&
                       json["rope_parameters"].contains("sliding_attention");
  config.local_rope =
      parse_rope(by_type ? rope_settings(json, "sliding_attention", path) : Json::object(),
                 positive(json, "rope_local_base_freq", config.local_rope->theta, path),
                 config.max_positions, path);
}

// Models with a head of their own hold the encoder under the family's name.
void read_encoder(const Json& json, const std::string& path, DecoderConfig& config) {
  config.num_token_types = bounded(json, "type_vocab_size", 1, 4096, path);
  const std::string positions = json_string(json, "position_embedding_type", "absolute", path);
  if (positions != "absolute") {
    throw UnsupportedError(path + ": position_embedding_type \"" + positions +
                           "\" is not handled, only absolute");
  }
  const Json classes = json.value("architectures", Json());
  const bool named = classes.is_array() && !classes.empty() && classes[0].is_string();
  if (!named || classes[0].get_ref<const std::string&>().ends_with("Model")) return;
  DecoderNames& names = config.names;
  for (std::string* name : {&names.embedding, &names.positions, &names.token_types,
                            &names.embedding_norm, &names.blocks})
    name->insert(0, config.family + ".");
}

}  // namespace

void DecoderConfig::require_head(const std::string& what) const {
  if (!bidirectional) return;
  throw UnsupportedError(what + " needs a model that predicts the next token; " + family +
                         " models are encoders, which `curvq eval --reference ORIGINAL` compares "
                         "by their sentence embeddings");
}

bool is_known_family(const std::string& model_type) { return find_family(model_type) != nullptr; }

std::vector<std::string> known_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.config.family);
  return names;
}

DecoderConfig DecoderConfig::from_directory(const std::string& directory) {
  const std::string path = model_file_origin(directory, "config.json");
  const Json json = read_model_config(directory);
  const std::string model_type = json_string(json, "model_type", "", path);
  const Family* family = find_family(model_type);
  if (family == nullptr) {
    throw UnsupportedError(path + ": model_type \"" + model_type +
                           "\" is not handled; handled are " + join(known_families()));
  }
  check_fixed_settings(json, path);
  DecoderConfig config = family->config;
  read_sizes(json, *family, path, config);
  config.norm_epsilon =
      positive(json, spelling(json, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}),
               config.norm_epsilon, path);
  const Spellings activation = {"hidden_activation", "hidden_act", "activation_function"};
  if (says(json, spelling(json, activation)))
    config.activation =
        parse_activation(json_string(json, spelling(json, activation), "", path), path);
  const Spellings attention_bias = {"attention_bias", "enable_bias"};
  config.qkv_bias = json_bool(json, spelling(json, attention_bias), config.qkv_bias, path);
  config.o_bias = json_bool(json, spelling(json, attention_bias), config.o_bias, path);
  config.mlp_bias =
      json_bool(json, spelling(json, {"mlp_bias", "enable_bias"}), config.mlp_bias, path);
  if (config.bidirectional) {
    read_encoder(json, path, config);
  } else {
    config.tied_embeddings = json_bool(json, "tie_word_embeddings", config.tied_embeddings, path);
  }
  config.parallel_residual =
      json_bool(json, "use_parallel_residual", config.parallel_residual, path);
  config.windows = sliding_windows(json, *family, config.num_layers, path);
  read_experts(json, path, config);
  read_scales(json, *family, path, config);
  if (family->rotates) read_rope(json, path, config);
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

}  // namespace curvq
