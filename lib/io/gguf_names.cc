#include "io/gguf_names.h"

#include <regex>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/text.h"

namespace curvq::io {
namespace {

struct Pair {
  const char *gguf, *model;
};

constexpr Pair kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr Pair kInBlock[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

const std::regex& gguf_pattern() {
  static const std::regex pattern(R"((?:blk\.([0-9]+)\.)?([a-z_]+)\.(weight|bias))");
  return pattern;
}

const std::regex& model_pattern() {
  static const std::regex pattern(R"((?:model\.layers\.([0-9]+)\.)?([a-z_.]+)\.(weight|bias))");
  return pattern;
}

}  // namespace

GgufNames::GgufNames(const GgufModel& model)
    : path_(model.path()), is_llama_(model.architecture() == "llama") {
  if (!is_llama_) return;
  num_heads_ = json_int(model.metadata(), "llama.attention.head_count", path_);
  num_kv_heads_ = json_int(model.metadata(), "llama.attention.head_count_kv", num_heads_, path_);
}

std::string GgufNames::model_name(const std::string& name) const {
  std::smatch match;
  if (!is_llama_ || !std::regex_match(name, match, gguf_pattern())) return name;
  if (match[1].matched) {
    for (const Pair& pair : kInBlock) {
      if (match[2] == pair.gguf)
        return "model.layers." + match[1].str() + "." + pair.model + "." + match[3].str();
    }
  } else {
    for (const Pair& pair : kOutside) {
      if (match[2] == pair.gguf) return std::string(pair.model) + "." + match[3].str();
    }
  }
  return name;
}

int64_t GgufNames::half_head(const GgufTensor& tensor) const {
  std::smatch match;
  if (!is_llama_ || !std::regex_match(tensor.name, match, gguf_pattern())) return 0;
  const bool is_q = match[2] == "attn_q", is_k = match[2] == "attn_k";
  if (!match[1].matched || (!is_q && !is_k)) return 0;
  const int64_t heads = is_q ? num_heads_ : num_kv_heads_;
  const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
  if (heads < 1 || rows % (2 * heads) != 0 || rows == 0 || tensor.shape.size() > 2) {
    throw FormatError(
        format("%s: tensor %s %s has no whole rows for each of %lld heads "
               "(llama.attention.head_count%s)",
               path_.c_str(), printable(tensor.name).c_str(), shape_string(tensor.shape).c_str(),
               static_cast<long long>(heads), is_q ? "" : "_kv"));
  }
  return rows / heads / 2;
}

bool GgufNames::is_configuration(const std::string& name) const {
  return is_llama_ && name == "rope_freqs.weight";
}

std::optional<std::string> gguf_tensor_name(const std::string& model_name) {
  std::smatch match;
  if (!std::regex_match(model_name, match, model_pattern())) return std::nullopt;
  if (match[1].matched) {
    for (const Pair& pair : kInBlock) {
      if (match[2] == pair.model)
        return "blk." + match[1].str() + "." + pair.gguf + "." + match[3].str();
    }
  } else {
    for (const Pair& pair : kOutside) {
      if (match[2] == pair.model) return std::string(pair.gguf) + "." + match[3].str();
    }
  }
  return std::nullopt;
}

}  // namespace curvq::io
