#include "io/gguf_metadata.h"

#include "curvq/core/error.h"
#include "io/gguf_config.h"

namespace curvq::io {
namespace {

// Older configs have rope_theta and rope_scaling beside each other, newer ones one rope_parameters.
Json rope_of(const Json& config) {
  Json rope = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key) && config[key].is_object()) rope.update(config[key]);
  }
  if (!rope.contains("rope_theta") && config.contains("rope_theta"))
    rope["rope_theta"] = config["rope_theta"];
  return rope;
}

std::string rope_type(const Json& rope, const std::string& origin) {
  return json_string(rope, "rope_type", json_string(rope, "type", "default", origin), origin);
}

int64_t head_dim(const Json& config, const std::string& origin) {
  const int64_t heads = json_int(config, "num_attention_heads", origin);
  return json_int(config, "head_dim", json_int(config, "hidden_size", origin) / heads, origin);
}

}  // namespace

GgufMetadata gguf_architecture(const Json& config, const std::string& origin) {
  const std::string family = json_string(config, "model_type", "", origin);
  if (family != "llama") {
    throw UnsupportedError(origin + ": model_type \"" + family +
                           "\" is not written as a GGUF; written is llama");
  }
  const Json rope = rope_of(config);
  const std::string scaling = rope_type(rope, origin);
  if (scaling != "default" && scaling != "linear" && scaling != "llama3")
    throw UnsupportedError(origin + ": rope scaling \"" + scaling + "\" is not written as a GGUF");
  const auto integer = [&](const char* key) {
    return static_cast<uint32_t>(json_int(config, key, origin));
  };
  const auto heads = integer("num_attention_heads");
  const auto dim = static_cast<uint32_t>(head_dim(config, origin));
  GgufMetadata metadata = {
      {"general.architecture", std::string("llama")},
      {"general.quantization_version", uint32_t{2}},
      {"llama.vocab_size", integer("vocab_size")},
      {"llama.context_length", integer("max_position_embeddings")},
      {"llama.embedding_length", integer("hidden_size")},
      {"llama.block_count", integer("num_hidden_layers")},
      {"llama.feed_forward_length", integer("intermediate_size")},
      {"llama.attention.head_count", heads},
      {"llama.attention.head_count_kv",
       static_cast<uint32_t>(json_int(config, "num_key_value_heads", heads, origin))},
      {"llama.attention.key_length", dim},
      {"llama.attention.value_length", dim},
      {"llama.attention.layer_norm_rms_epsilon",
       static_cast<float>(json_number(config, "rms_norm_eps", 1e-6, origin))},
      {"llama.rope.dimension_count", dim},
      {"llama.rope.freq_base",
       static_cast<float>(json_number(rope, "rope_theta", 10000.0, origin))}};
  if (scaling == "linear") {
    metadata.emplace_back("llama.rope.scaling.type", std::string("linear"));
    metadata.emplace_back("llama.rope.scaling.factor",
                          static_cast<float>(json_number(rope, "factor", 1.0, origin)));
  }
  return metadata;
}

std::vector<float> gguf_rope_factors(const Json& config, const std::string& origin) {
  const Json rope = rope_of(config);
  if (rope_type(rope, origin) != "llama3") return {};
  const Llama3Rope parameters = {
      json_number(rope, "factor", 1.0, origin), json_number(rope, "low_freq_factor", 1.0, origin),
      json_number(rope, "high_freq_factor", 4.0, origin),
      static_cast<double>(json_int(rope, "original_max_position_embeddings", 8192, origin))};
  const double theta = json_number(rope, "rope_theta", 10000.0, origin);
  const int64_t dim = head_dim(config, origin);
  std::vector<float> factors;
  for (int64_t i = 0; i < dim / 2; ++i)
    factors.push_back(static_cast<float>(llama3_factor(parameters, theta, i, dim)));
  return factors;
}

}  // namespace curvq::io
