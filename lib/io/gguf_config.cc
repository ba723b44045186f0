#include "io/gguf_config.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/text.h"

namespace curvq::io {
namespace {

// Metadata of one architecture: "llama.KEY".
class Fields {
 public:
  explicit Fields(const GgufModel& model)
      : metadata_(model.metadata()), path_(model.path()), prefix_(model.architecture() + ".") {}

  int64_t integer(const std::string& key) const {
    return json_int(metadata_, (prefix_ + key).c_str(), path_);
  }
  int64_t integer(const std::string& key, int64_t fallback) const {
    return json_int(metadata_, (prefix_ + key).c_str(), fallback, path_);
  }
  double number(const std::string& key, double fallback) const {
    return json_number(metadata_, (prefix_ + key).c_str(), fallback, path_);
  }
  std::string text(const std::string& key, const std::string& fallback) const {
    return json_string(metadata_, (prefix_ + key).c_str(), fallback, path_);
  }
  bool has(const std::string& key) const { return metadata_.contains(prefix_ + key); }
  const std::string& path() const { return path_; }

 private:
  const Json& metadata_;
  const std::string& path_;
  std::string prefix_;
};

const GgufTensor* find_tensor(const GgufModel& model, const std::string& name) {
  for (const GgufFile& file : model.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

// llama.cpp stores the quotients as a tensor; the parameters are those of all Llama 3 models but
// for the factor, which is the largest quotient.
OrderedJson llama3_scaling(const GgufModel& model, const GgufTensor& tensor, double theta,
                           int64_t head_dim) {
  const auto fail = [&](const std::string& why) {
    throw UnsupportedError(model.path() + ": tensor rope_freqs.weight " + why +
                           "; only the factors of Llama 3 (1, 4, 8192) are handled");
  };
  const int64_t count = tensor.bytes / static_cast<int64_t>(sizeof(float));
  if (tensor.type != GgmlType::kF32 || count != head_dim / 2) {
    fail(format("must be F32 [%lld]", static_cast<long long>(head_dim / 2)));
  }
  std::vector<float> factors(count);
  std::memcpy(factors.data(), tensor.data, tensor.bytes);
  const Llama3Rope rope = {factors.empty() ? 1.0 : factors.back(), 1, 4, 8192};
  for (int64_t i = 0; i < count; ++i) {
    const double wanted = llama3_factor(rope, theta, i, head_dim);
    // Stored as float32, computed in float32 by the converter: some units in the last place.
    if (!(std::abs(factors[i] - wanted) <= 1e-4 * wanted)) {
      fail(format("has %g at %lld, expected %g", static_cast<double>(factors[i]),
                  static_cast<long long>(i), wanted));
    }
  }
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low},
          {"high_freq_factor", rope.high},
          {"original_max_position_embeddings", static_cast<int64_t>(rope.original)}};
}

OrderedJson rope_scaling(const GgufModel& model, const Fields& fields, double theta,
                         int64_t head_dim) {
  const std::string type = fields.text("rope.scaling.type", "none");
  const GgufTensor* factors = find_tensor(model, "rope_freqs.weight");
  if (factors != nullptr) return llama3_scaling(model, *factors, theta, head_dim);
  if (type == "none") return nullptr;
  return {{"rope_type", type}, {"factor", fields.number("rope.scaling.factor", 1.0)}};
}

void add_token_ids(const GgufModel& model, OrderedJson* config) {
  for (const char* name : {"bos", "eos"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (model.metadata().contains(key))
      (*config)[std::string(name) + "_token_id"] =
          json_int(model.metadata(), key.c_str(), model.path());
  }
  if (model.metadata().contains("tokenizer.ggml.padding_token_id"))
    (*config)["pad_token_id"] =
        json_int(model.metadata(), "tokenizer.ggml.padding_token_id", model.path());
}

// What plain tensors have for the most part, by bytes.
const char* torch_dtype(const GgufModel& model) {
  int64_t half = 0, brain = 0, single = 0;
  for (const TensorView& tensor : model.tensors()) {
    if (tensor.dtype == DType::kF16) half += tensor.num_elements();
    if (tensor.dtype == DType::kBF16) brain += tensor.num_elements();
    if (tensor.dtype == DType::kF32) single += tensor.num_elements();
  }
  if (single >= half && single >= brain) return "float32";
  return half >= brain ? "float16" : "bfloat16";
}

}  // namespace

double llama3_factor(const Llama3Rope& rope, double theta, int64_t i, int64_t head_dim) {
  const double wavelength =
      2 * std::numbers::pi *
      std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  if (wavelength < rope.original / rope.high) return 1;
  if (wavelength > rope.original / rope.low) return rope.factor;
  const double smooth = (rope.original / wavelength - rope.low) / (rope.high - rope.low);
  return 1 / ((1 - smooth) / rope.factor + smooth);
}

OrderedJson gguf_config(const GgufModel& model) {
  const std::string family = model.architecture();
  if (family != "llama") return {{"model_type", family.empty() ? "unknown" : family}};
  const Fields fields(model);
  if (fields.integer("expert_count", 0) > 0) return {{"model_type", "mixtral"}};
  OrderedJson config;
  config["architectures"] = {"LlamaForCausalLM"};
  config["model_type"] = "llama";
  const int64_t hidden = fields.integer("embedding_length");
  const int64_t heads = fields.integer("attention.head_count");
  if (heads < 1) throw FormatError(fields.path() + ": llama.attention.head_count must be positive");
  const int64_t head_dim = fields.integer("attention.key_length", hidden / heads);
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    if (fields.integer(key, head_dim) != head_dim) {
      throw UnsupportedError(format(
          "%s: llama.%s is %lld, heads have %lld; they must be equal", fields.path().c_str(), key,
          static_cast<long long>(fields.integer(key)), static_cast<long long>(head_dim)));
    }
  }
  const double theta = fields.number("rope.freq_base", 10000.0);
  const GgufTensor* embedding = find_tensor(model, "token_embd.weight");
  const int64_t rows = embedding && embedding->shape.size() == 2 ? embedding->shape[0] : 0;
  config["attention_bias"] = find_tensor(model, "blk.0.attn_q.bias") != nullptr;
  config["attention_dropout"] = 0.0;
  add_token_ids(model, &config);
  config["head_dim"] = head_dim;
  config["hidden_act"] = "silu";
  config["hidden_size"] = hidden;
  config["initializer_range"] = 0.02;
  config["intermediate_size"] = fields.integer("feed_forward_length");
  config["max_position_embeddings"] = fields.integer("context_length");
  config["mlp_bias"] = find_tensor(model, "blk.0.ffn_up.bias") != nullptr;
  config["num_attention_heads"] = heads;
  config["num_hidden_layers"] = fields.integer("block_count");
  config["num_key_value_heads"] = fields.integer("attention.head_count_kv", heads);
  config["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon", 1e-6);
  config["rope_scaling"] = rope_scaling(model, fields, theta, head_dim);
  config["rope_theta"] = theta;
  config["tie_word_embeddings"] = find_tensor(model, "output.weight") == nullptr;
  config["torch_dtype"] = torch_dtype(model);
  config["use_cache"] = true;
  // The tensor has the last word, as metadata may leave it out.
  config["vocab_size"] = rows > 0 ? rows : fields.integer("vocab_size");
  return config;
}

}  // namespace curvq::io
