#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/model_files.h"
#include "io/gguf_metadata.h"
#include "io/gguf_pre_tokenizers.h"
#include "io/text.h"

namespace curvq::io {
namespace {

// The parts of a tokenizer.json that a GGUF has.
struct Source {
  std::string origin;
  Json json;
  std::vector<std::string> tokens;  // by id
  std::vector<int32_t> types;
  std::vector<std::pair<std::string, std::string>> merges;
};

const Json& member(const Json& object, const char* key, const std::string& origin) {
  const auto found = object.find(key);
  if (!object.is_object() || found == object.end())
    throw FormatError(origin + ": \"" + key + "\" is missing");
  return *found;
}

void put_token(Source* source, const Json& id, const std::string& text, int32_t type) {
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= source->tokens.size()) {
    throw UnsupportedError(source->origin + ": the id of \"" + printable(text) + "\" is " +
                           printable(id.dump()) + ", the model has " +
                           std::to_string(source->tokens.size()) + " tokens");
  }
  source->tokens[id.get<uint64_t>()] = text;
  source->types[id.get<uint64_t>()] = type;
}

void read_tokens(Source* source, int64_t vocab_size, bool bytes) {
  source->tokens.assign(static_cast<size_t>(vocab_size), "");
  source->types.assign(source->tokens.size(), kUnused);
  const Json& model = member(source->json, "model", source->origin);
  const std::string unknown = json_string(model, "unk_token", "", source->origin);
  for (const auto& [text, id] : member(model, "vocab", source->origin).items()) {
    const bool is_byte = bytes && text.size() == 6 && text.starts_with("<0x") && text.back() == '>';
    put_token(source, id, text, is_byte ? kByte : text == unknown ? kUnknown : kNormal);
  }
  const auto added = source->json.find("added_tokens");
  if (added != source->json.end() && added->is_array()) {
    for (const Json& token : *added) {
      const std::string text = json_string(token, "content", "", source->origin);
      const bool special = json_bool(token, "special", false, source->origin);
      put_token(source, member(token, "id", source->origin), text,
                text == unknown ? kUnknown
                : special       ? kControl
                                : kUserDefined);
    }
  }
  for (size_t id = 0; id < source->tokens.size(); ++id) {
    if (source->tokens[id].empty()) source->tokens[id] = "[PAD" + std::to_string(id) + "]";
  }
}

void read_merges(Source* source) {
  const Json& merges =
      member(member(source->json, "model", source->origin), "merges", source->origin);
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      source->merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos)
      throw FormatError(source->origin + ": merges must be \"a b\" or [\"a\", \"b\"]");
    source->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

// The steps of a pre_tokenizer, without what makes no difference to ids.
Json steps_of(const Json& pre_tokenizer) {
  Json steps = pre_tokenizer.is_object() && pre_tokenizer.contains("pretokenizers")
                   ? pre_tokenizer["pretokenizers"]
                   : Json::array({pre_tokenizer});
  for (Json& step : steps) {
    if (step.is_object()) step.erase("trim_offsets");
  }
  return steps;
}

bool is_nfc(const Json& normalizer) {
  return normalizer.is_object() && normalizer.value("type", "") == "NFC";
}

const PreTokenizer& match_pre_tokenizer(const Source& source) {
  const Json steps = steps_of(source.json.value("pre_tokenizer", Json()));
  const Json normalizer = source.json.value("normalizer", Json());
  for (const PreTokenizer& known : pre_tokenizers()) {
    const bool same_normalizer = known.nfc ? is_nfc(normalizer) : normalizer.is_null();
    if (same_normalizer && steps_of(Json(pre_tokenizer_json(known))) == steps) return known;
  }
  std::string names;
  for (const PreTokenizer& known : pre_tokenizers())
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  throw UnsupportedError(source.origin +
                         ": its normalizer and pre_tokenizer are none that curvq knows llama.cpp's "
                         "name of; it knows " +
                         names);
}

// Whether text becomes bytes of pieces (GPT-2) or pieces with a mark for spaces (SentencePiece).
bool is_byte_level(const Json& json) {
  return json.value("pre_tokenizer", Json()).dump().find("\"ByteLevel\"") != std::string::npos;
}

void add_byte_level(const Source& source, GgufMetadata* metadata) {
  std::vector<std::string> merges;
  for (const auto& [left, right] : source.merges) merges.push_back(left + " " + right);
  metadata->emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  metadata->emplace_back("tokenizer.ggml.pre", std::string(match_pre_tokenizer(source).name));
  metadata->emplace_back("tokenizer.ggml.merges", std::move(merges));
}

// A piece's score is minus the rank of the merge that makes it; what no merge makes comes last.
void add_sentencepiece(const Source& source, GgufMetadata* metadata) {
  const std::string normalizer = source.json.value("normalizer", Json()).dump();
  if (normalizer.find("\"Replace\"") == std::string::npos ||
      !source.json.value("pre_tokenizer", Json()).is_null()) {
    throw UnsupportedError(
        source.origin +
        ": neither a byte-level tokenizer nor one in the style of SentencePiece, "
        "which are those that a GGUF of curvq holds");
  }
  std::unordered_map<std::string, size_t> rank;
  for (const auto& [left, right] : source.merges) rank.emplace(left + right, rank.size());
  std::vector<float> scores;
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const auto found = rank.find(source.tokens[id]);
    scores.push_back(-static_cast<float>(found != rank.end() ? found->second : rank.size() + id));
  }
  metadata->emplace_back("tokenizer.ggml.model", std::string("llama"));
  metadata->emplace_back("tokenizer.ggml.scores", std::move(scores));
  metadata->emplace_back("tokenizer.ggml.add_space_prefix",
                         normalizer.find("\"Prepend\"") != std::string::npos);
}

// The special token that the post-processor puts first or last; "" if it puts none there.
std::string template_token(const Json& json, bool first) {
  const Json post = json.value("post_processor", Json());
  Json list = Json::array({post});
  if (post.is_object() && post.contains("processors")) list = post["processors"];
  for (const Json& processor : list) {
    if (!processor.is_object() || !processor.contains("single") ||
        !processor["single"].is_array() || processor["single"].empty())
      continue;
    const Json& end = first ? processor["single"].front() : processor["single"].back();
    if (end.is_object() && end.contains("SpecialToken")) return end["SpecialToken"].value("id", "");
  }
  return "";
}

void add_special_ids(const Source& source, const Json& config, const std::string& model,
                     GgufMetadata* metadata) {
  const auto id_of = [&](const std::string& text) -> std::optional<uint32_t> {
    const auto found = std::find(source.tokens.begin(), source.tokens.end(), text);
    if (text.empty() || found == source.tokens.end()) return std::nullopt;
    return static_cast<uint32_t>(found - source.tokens.begin());
  };
  Json tokens = Json::object();
  if (const auto text = read_model_file(model, "tokenizer_config.json"))
    tokens = parse_json(*text, model_file_origin(model, "tokenizer_config.json"));
  for (const auto& [name, key, config_key] : {std::tuple("bos", "bos_token", "bos_token_id"),
                                              std::tuple("eos", "eos_token", "eos_token_id"),
                                              std::tuple("padding", "pad_token", "pad_token_id"),
                                              std::tuple("unknown", "unk_token", "unk_token_id")}) {
    Json token = tokens.is_object() ? tokens.value(key, Json()) : Json();
    if (token.is_object()) token = token.value("content", Json());
    std::optional<uint32_t> id;
    if (token.is_string()) id = id_of(token.get<std::string>());
    Json number = config.value(config_key, Json());
    if (number.is_array() && !number.empty()) number = number[0];
    if (!id && number.is_number_unsigned()) id = number.get<uint32_t>();
    if (id) metadata->emplace_back(std::string("tokenizer.ggml.") + name + "_token_id", *id);
  }
  metadata->emplace_back("tokenizer.ggml.add_bos_token",
                         !template_token(source.json, true).empty());
  metadata->emplace_back("tokenizer.ggml.add_eos_token",
                         !template_token(source.json, false).empty());
  if (tokens.is_object() && tokens.value("chat_template", Json()).is_string())
    metadata->emplace_back("tokenizer.chat_template", tokens["chat_template"].get<std::string>());
}

}  // namespace

GgufMetadata gguf_vocabulary(const std::string& model, const Json& config, int64_t vocab_size) {
  const auto text = read_model_file(model, "tokenizer.json");
  if (!text) {
    throw UnsupportedError(model_file_origin(model, "tokenizer.json") +
                           ": missing, and llama.cpp needs a tokenizer; copy it there");
  }
  Source source;
  source.origin = model_file_origin(model, "tokenizer.json");
  source.json = parse_json(*text, source.origin);
  if (!source.json.is_object()) throw FormatError(source.origin + ": not a JSON object");
  const bool byte_level = is_byte_level(source.json);
  read_tokens(&source, vocab_size, !byte_level);
  read_merges(&source);
  GgufMetadata metadata;
  if (byte_level) {
    add_byte_level(source, &metadata);
  } else {
    add_sentencepiece(source, &metadata);
  }
  metadata.emplace_back("tokenizer.ggml.tokens", source.tokens);
  metadata.emplace_back("tokenizer.ggml.token_type", source.types);
  add_special_ids(source, config, model, &metadata);
  return metadata;
}

}  // namespace curvq::io
