#include "io/tokenizer_load.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_set>

#include "curvq/core/error.h"
#include "io/text.h"
#include "io/tokenizer_json.h"

namespace curvq::io {
namespace {

// Each byte of a text may be compared with so many of a token.
constexpr size_t kMaxAddedTokenBytes = 1024;
// One or two are usual.
constexpr size_t kMaxTemplateIds = 1024;

const Json& value_or_null(const Json& object, const char* key) {
  static const Json null;
  const auto entry = object.find(key);
  return entry == object.end() ? null : *entry;
}

AddedToken read_added_token(const Json& entry, const std::string& where) {
  AddedToken token;
  token.content = json_required_string(entry, "content", where);
  if (token.content.empty()) throw FormatError(where + ": \"content\" is empty");
  token.single_word = json_bool(entry, "single_word", false, where);
  token.lstrip = json_bool(entry, "lstrip", false, where);
  token.rstrip = json_bool(entry, "rstrip", false, where);
  token.special = json_bool(entry, "special", false, where);
  token.normalized = json_bool(entry, "normalized", !token.special, where);
  return token;
}

// An added token has its id from the model's vocabulary, or the next free one after it.
void check_id(AddedToken& token, int64_t stated, const Vocabulary& model, int32_t& next_id,
              const std::string& where) {
  const int32_t known = model.id(token.content);
  token.id = known >= 0 ? known : next_id++;
  if (token.id != stated) {
    throw FormatError(where + ": " + in_quotes(token.content) + " has id " +
                      std::to_string(stated) + ", but " +
                      (known >= 0 ? "the model's vocabulary gives it "
                                  : "the next free id after the vocabulary is ") +
                      std::to_string(token.id));
  }
  if (known < 0 && model.token(token.id) != nullptr) {
    throw FormatError(where + ": " + in_quotes(token.content) + " has id " +
                      std::to_string(token.id) + ", which " + in_quotes(*model.token(token.id)) +
                      " has already");
  }
}

void normalize_tokens(std::vector<AddedToken>& tokens,
                      const std::vector<std::unique_ptr<Normalizer>>& normalizers,
                      const std::string& where) {
  size_t bytes = 0;
  for (const AddedToken& token : tokens) bytes += token.content.size();
  TextWork work;
  work.start(bytes);
  std::set<std::pair<bool, std::string>> seen;
  for (AddedToken& token : tokens) {
    NormalizedText text{token.content, 0};
    if (token.normalized) {
      for (const auto& normalizer : normalizers) normalizer->apply(text, work);
    }
    token.pattern = std::move(text.text);
    if (token.pattern.empty()) {
      throw UnsupportedError(where + ": " + in_quotes(token.content) +
                             " is empty after normalization");
    }
    if (token.pattern.size() > kMaxAddedTokenBytes) {
      throw UnsupportedError(where + ": " + in_quotes(token.content) + " has " +
                             std::to_string(token.pattern.size()) + " bytes, the limit is " +
                             std::to_string(kMaxAddedTokenBytes));
    }
    if (!seen.emplace(token.normalized, token.pattern).second) {
      throw FormatError(where + ": " + in_quotes(token.content) +
                        " occurs twice after normalization");
    }
  }
}

AddedTokens read_added_tokens(const Json& list, const TokenizerParts& parts,
                              const std::string& where) {
  if (list.is_null()) return {};
  if (!list.is_array()) {
    throw FormatError(where + ": must be an array, found " + list.type_name());
  }
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string> seen;
  auto next_id = static_cast<int32_t>(parts.model->vocabulary().ids().size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = where + "[" + std::to_string(i) + "]";
    AddedToken token = read_added_token(list[i], at);
    if (!seen.insert(token.content).second) {
      throw FormatError(at + ": " + in_quotes(token.content) + " occurs twice");
    }
    check_id(token, json_int(list[i], "id", at), parts.model->vocabulary(), next_id, at);
    tokens.push_back(std::move(token));
  }
  normalize_tokens(tokens, parts.normalizers, where);
  return AddedTokens(std::move(tokens));
}

bool has_id(const TokenizerParts& parts, int64_t id) {
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) return false;
  const std::vector<AddedToken>& added = parts.added.tokens();
  return parts.model->vocabulary().token(static_cast<int32_t>(id)) != nullptr ||
         std::any_of(added.begin(), added.end(), [&](const AddedToken& t) { return t.id == id; });
}

void read_template(const Json& component, const std::string& where, TokenizerParts& parts) {
  const Json& single = json_required(component, "single", where);
  if (!single.is_array()) throw FormatError(where + ": \"single\" must be an array");
  const Json& special = value_or_null(component, "special_tokens");
  bool after_text = false;
  for (size_t i = 0; i < single.size(); ++i) {
    const std::string at = where + ".single[" + std::to_string(i) + "]";
    const Json& piece = single[i];
    if (piece.is_object() && piece.contains("Sequence")) {
      if (json_required_string(piece["Sequence"], "id", at) != "A") {
        throw FormatError(at + ": a template for one text may name only sequence A");
      }
      if (after_text) throw UnsupportedError(at + ": the text occurs twice");
      after_text = true;
      continue;
    }
    const std::string name =
        json_required_string(json_required(piece, "SpecialToken", at), "id", at + ".SpecialToken");
    const std::string token_at = where + ".special_tokens[" + in_quotes(name) + "]";
    if (!special.is_object() || !special.contains(name)) {
      throw FormatError(at + ": " + in_quotes(name) + " is not in \"special_tokens\"");
    }
    const Json& ids = json_required(special[name], "ids", token_at);
    if (!ids.is_array()) throw FormatError(token_at + ": \"ids\" must be an array");
    for (const Json& id : ids) {
      const int64_t value = json_int(Json{{"id", id}}, "id", token_at);
      if (!has_id(parts, value)) {
        throw FormatError(token_at + ": no token has the id " + std::to_string(value));
      }
      (after_text ? parts.suffix_ids : parts.prefix_ids).push_back(static_cast<int32_t>(value));
      if (parts.prefix_ids.size() + parts.suffix_ids.size() > kMaxTemplateIds) {
        throw UnsupportedError(where + ": adds more than " + std::to_string(kMaxTemplateIds) +
                               " tokens to a text");
      }
    }
  }
  if (!after_text) throw UnsupportedError(where + ": the template for one text leaves it out");
}

void read_post_processor(const Json& root, const std::string& where, TokenizerParts& parts) {
  bool has_template = false;
  for_each_component(root, "processors", where,
                     [&](const Json& component, const std::string& type, const std::string& at) {
                       if (type == "ByteLevel") return;  // it changes only offsets
                       if (type != "TemplateProcessing") {
                         throw_unsupported(at, type, "Sequence, ByteLevel and TemplateProcessing");
                       }
                       if (has_template) throw UnsupportedError(at + ": is a second template");
                       has_template = true;
                       read_template(component, at, parts);
                     });
}

}  // namespace

TokenizerParts load_tokenizer(const Json& root, const std::string& origin) {
  if (!root.is_object()) throw FormatError(origin + ": must hold an object");
  const std::string where = origin + ": ";
  if (const std::string version = json_string(root, "version", "1.0", origin); version != "1.0") {
    throw UnsupportedError(where + "version " + printable(version) + " is not handled, only 1.0");
  }
  TokenizerParts parts;
  parts.model = make_token_model(json_required(root, "model", origin), where + "model");
  parts.normalizers = make_normalizers(value_or_null(root, "normalizer"), where + "normalizer");
  parts.added =
      read_added_tokens(value_or_null(root, "added_tokens"), parts, where + "added_tokens");
  parts.pre_tokenizers =
      make_pre_tokenizers(value_or_null(root, "pre_tokenizer"), where + "pre_tokenizer");
  const Json& decoder = value_or_null(root, "decoder");
  parts.has_decoder = !decoder.is_null();
  parts.decoders = make_decoders(decoder, where + "decoder");
  read_post_processor(value_or_null(root, "post_processor"), where + "post_processor", parts);
  return parts;
}

}  // namespace curvq::io
