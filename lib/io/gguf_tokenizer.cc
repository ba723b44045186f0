#include <algorithm>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/gguf_config.h"
#include "io/gguf_pre_tokenizers.h"
#include "io/text.h"

namespace curvq::io {
namespace {

constexpr size_t kMaxTokenBytes = 1024;  // as of added tokens

// The tokenizer.ggml.* values, checked.
struct Vocabulary {
  std::string path, model, pre;
  std::vector<std::string> tokens;
  std::vector<int64_t> types;  // empty: all are normal
  std::vector<double> scores;  // empty, or one a token
  std::vector<std::string> merges;

  int64_t type(size_t id) const { return types.empty() ? int64_t{kNormal} : types[id]; }
};

const Json* find_array(const GgufModel& model, const char* key) {
  const auto found = model.metadata().find(key);
  if (found == model.metadata().end()) return nullptr;
  if (!found->is_array()) {
    throw FormatError(model.path() + ": metadata " + key + " must be an array");
  }
  return &*found;
}

template <class T, class Accepts>
std::vector<T> read_array(const GgufModel& model, const char* key, Accepts accepts) {
  std::vector<T> values;
  const Json* array = find_array(model, key);
  if (array == nullptr) return values;
  values.reserve(array->size());
  for (const Json& value : *array) {
    if (!accepts(value)) {
      throw FormatError(model.path() + ": metadata " + key + " holds a value of the wrong type");
    }
    values.push_back(value.get<T>());
  }
  return values;
}

Vocabulary read_vocabulary(const GgufModel& model) {
  Vocabulary vocabulary;
  vocabulary.path = model.path();
  vocabulary.model = json_string(model.metadata(), "tokenizer.ggml.model", "", model.path());
  vocabulary.pre = json_string(model.metadata(), "tokenizer.ggml.pre", "default", model.path());
  const auto is_string = [](const Json& value) { return value.is_string(); };
  vocabulary.tokens = read_array<std::string>(model, "tokenizer.ggml.tokens", is_string);
  vocabulary.merges = read_array<std::string>(model, "tokenizer.ggml.merges", is_string);
  vocabulary.types = read_array<int64_t>(model, "tokenizer.ggml.token_type",
                                         [](const Json& v) { return v.is_number_integer(); });
  vocabulary.scores = read_array<double>(model, "tokenizer.ggml.scores",
                                         [](const Json& v) { return v.is_number(); });
  const size_t wanted = vocabulary.tokens.size();
  for (const std::string& token : vocabulary.tokens) {
    if (token.size() <= kMaxTokenBytes) continue;
    throw FormatError(
        format("%s: metadata tokenizer.ggml.tokens has one of %zu bytes; at most %zu are "
               "read",
               model.path().c_str(), token.size(), kMaxTokenBytes));
  }
  for (const auto& [key, size] : {std::pair("token_type", vocabulary.types.size()),
                                  std::pair("scores", vocabulary.scores.size())}) {
    if (size != 0 && size != wanted) {
      throw FormatError(format("%s: metadata tokenizer.ggml.%s has %zu values for %zu tokens",
                               model.path().c_str(), key, size, wanted));
    }
  }
  return vocabulary;
}

std::string token_text(const GgufModel& model, const Vocabulary& vocabulary, const char* name) {
  const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
  const int64_t id = json_int(model.metadata(), key.c_str(), -1, model.path());
  if (id < 0) return "";
  if (id >= static_cast<int64_t>(vocabulary.tokens.size())) {
    throw FormatError(format("%s: metadata %s is %lld, there are %zu tokens", model.path().c_str(),
                             key.c_str(), static_cast<long long>(id), vocabulary.tokens.size()));
  }
  return vocabulary.tokens[id];
}

OrderedJson added_tokens(const Vocabulary& vocabulary) {
  OrderedJson added = OrderedJson::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int64_t type = vocabulary.type(id);
    const bool special = type == kControl || type == kUnknown;
    if ((!special && type != kUserDefined) || vocabulary.tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

OrderedJson vocabulary_json(const Vocabulary& vocabulary) {
  // Appended to: a look-up of each key would take quadratic time.
  OrderedJson::object_t tokens;
  tokens.reserve(vocabulary.tokens.size());
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto [first, is_new] = seen.emplace(vocabulary.tokens[id], id);
    if (!is_new) {
      throw FormatError(
          format("%s: metadata tokenizer.ggml.tokens has the same text at %zu and %zu",
                 vocabulary.path.c_str(), first->second, id));
    }
    tokens.emplace_back(vocabulary.tokens[id], id);
  }
  return tokens;
}

// SentencePiece joins the two pieces whose union has the best score; as merges: every way to cut a
// token into two tokens, the best tokens first.
OrderedJson merges_by_score(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == kNormal || vocabulary.type(id) == kUserDefined)
      ids.emplace(vocabulary.tokens[id], id);
  }
  std::vector<size_t> order;
  for (const auto& [token, id] : ids) order.push_back(id);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-vocabulary.scores[a], a) < std::pair(-vocabulary.scores[b], b);
  });
  OrderedJson merges = OrderedJson::array();
  for (const size_t id : order) {
    const std::string_view token = vocabulary.tokens[id];
    std::vector<std::pair<size_t, size_t>> cuts;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end()) cuts.emplace_back(left->second, right->second);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right] : cuts)
      merges.push_back({vocabulary.tokens[left], vocabulary.tokens[right]});
  }
  return merges;
}

OrderedJson bpe_model(const Vocabulary& vocabulary, OrderedJson merges, const std::string& unknown,
                      bool byte_fallback, bool ignore_merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown.empty() ? OrderedJson(nullptr) : OrderedJson(unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", byte_fallback},
          {"byte_fallback", byte_fallback},
          {"ignore_merges", ignore_merges},
          {"vocab", vocabulary_json(vocabulary)},
          {"merges", std::move(merges)}};
}

// Puts the tokens before and after the text that the metadata asks for.
OrderedJson post_processor(const GgufModel& model, const Vocabulary& vocabulary,
                           bool bos_by_default) {
  const auto wants = [&](const char* name, bool fallback) {
    return json_bool(model.metadata(),
                     (std::string("tokenizer.ggml.add_") + name + "_token").c_str(), fallback,
                     model.path())
               ? token_text(model, vocabulary, name)
               : std::string();
  };
  OrderedJson single = OrderedJson::array(), pair = OrderedJson::array();
  OrderedJson special = OrderedJson::object();
  const auto add_special = [&](const std::string& token) {
    if (token.empty()) return;
    const auto id = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token) -
                    vocabulary.tokens.begin();
    special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    pair.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
  };
  const std::string bos = wants("bos", bos_by_default), eos = wants("eos", false);
  if (bos.empty() && eos.empty()) return nullptr;
  add_special(bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  add_special(eos);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

OrderedJson byte_level_tokenizer(const GgufModel& model, const Vocabulary& vocabulary) {
  const PreTokenizer& pre = find_pre_tokenizer(vocabulary.pre, vocabulary.path);
  const bool llama3 = pre.ignore_merges;
  OrderedJson merges = OrderedJson::array();
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) {
      throw FormatError(vocabulary.path + ": metadata tokenizer.ggml.merges has \"" +
                        printable(merge) + "\", which is not two tokens");
    }
    merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  OrderedJson json;
  json["normalizer"] = pre.nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson(nullptr);
  json["pre_tokenizer"] = pre_tokenizer_json(pre);
  json["post_processor"] = post_processor(model, vocabulary, llama3);
  json["decoder"] = byte_level(true, true);
  json["model"] = bpe_model(vocabulary, std::move(merges), "", false, pre.ignore_merges);
  return json;
}

OrderedJson sentencepiece_tokenizer(const GgufModel& model, const Vocabulary& vocabulary) {
  constexpr char kSpace[] = "\u2581";
  if (vocabulary.scores.empty()) {
    throw FormatError(vocabulary.path + ": metadata tokenizer.ggml.scores is missing");
  }
  const bool prefix =
      json_bool(model.metadata(), "tokenizer.ggml.add_space_prefix", true, model.path());
  const OrderedJson replace = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  OrderedJson normalizers = OrderedJson::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace);
  OrderedJson decoders = OrderedJson::array();
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  bool bytes = true;
  for (int byte = 0; byte < 256 && bytes; ++byte) {
    bytes = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(),
                      format("<0x%02X>", byte)) != vocabulary.tokens.end();
  }
  std::string unknown = token_text(model, vocabulary, "unknown");
  const auto found = std::find(vocabulary.types.begin(), vocabulary.types.end(), kUnknown);
  if (unknown.empty() && found != vocabulary.types.end())
    unknown = vocabulary.tokens[found - vocabulary.types.begin()];
  OrderedJson json;
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = post_processor(model, vocabulary, true);
  json["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  json["model"] = bpe_model(vocabulary, merges_by_score(vocabulary), unknown, bytes, false);
  return json;
}

}  // namespace

std::optional<OrderedJson> gguf_tokenizer(const GgufModel& model) {
  const Vocabulary vocabulary = read_vocabulary(model);
  if (vocabulary.tokens.empty()) return std::nullopt;
  OrderedJson parts;
  if (vocabulary.model == "gpt2") {
    parts = byte_level_tokenizer(model, vocabulary);
  } else if (vocabulary.model == "llama") {
    parts = sentencepiece_tokenizer(model, vocabulary);
  } else {
    throw UnsupportedError(model.path() + ": metadata tokenizer.ggml.model \"" +
                           printable(vocabulary.model) +
                           "\" is not handled; handled are gpt2, llama");
  }
  OrderedJson json = {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", added_tokens(vocabulary)}};
  json.update(parts);
  return json;
}

std::optional<OrderedJson> gguf_tokenizer_config(const GgufModel& model) {
  const Vocabulary vocabulary = read_vocabulary(model);
  if (vocabulary.tokens.empty()) return std::nullopt;
  OrderedJson json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["add_prefix_space"] = false;
  json["clean_up_tokenization_spaces"] = false;
  const std::string context = model.architecture() + ".context_length";
  if (model.metadata().contains(context)) {
    json["model_max_length"] = json_int(model.metadata(), context.c_str(), model.path());
  }
  for (const auto& [key, name] :
       {std::pair("bos_token", "bos"), std::pair("eos_token", "eos"),
        std::pair("pad_token", "padding"), std::pair("unk_token", "unknown")}) {
    const std::string text = token_text(model, vocabulary, name);
    if (!text.empty()) json[key] = text;
  }
  const std::string chat =
      json_string(model.metadata(), "tokenizer.chat_template", "", model.path());
  if (!chat.empty()) json["chat_template"] = chat;
  return json;
}

}  // namespace curvq::io
