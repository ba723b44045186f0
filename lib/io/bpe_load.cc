#include <limits>

#include "curvq/core/error.h"
#include "io/bpe.h"
#include "io/text.h"
#include "io/tokenizer_json.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

void require_empty(const Json& model, const char* key, const std::string& where) {
  const std::string value = json_string(model, key, "", where);
  if (!value.empty()) {
    throw UnsupportedError(where + ": \"" + key + "\" is " + in_quotes(value) +
                           ", only null or an empty string is handled");
  }
}

}  // namespace

Bpe::Bpe(const Json& model, const std::string& where) : TokenModel(model, where), where_(where) {
  read_options(model, where);
  find_characters();
  read_merges(json_required(model, "merges", where), where + ".merges");
  if (json_bool(model, "byte_fallback", false, where)) {
    for (int byte = 0; byte < 256; ++byte) {
      const char* digits = "0123456789ABCDEF";
      byte_ids_.push_back(
          vocabulary().id(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">"));
    }
  }
  unk_id_ = has_unk_ ? vocabulary().id(unk_token_) : -1;
}

void Bpe::read_options(const Json& model, const std::string& where) {
  if (const double dropout = json_number(model, "dropout", 0, where); dropout != 0) {
    throw UnsupportedError(where + ": \"dropout\" is " + std::to_string(dropout) +
                           ", only null or 0 is handled");
  }
  require_empty(model, "continuing_subword_prefix", where);
  require_empty(model, "end_of_word_suffix", where);
  unk_token_ = json_string(model, "unk_token", "", where);
  has_unk_ = model.contains("unk_token") && !model["unk_token"].is_null();
  fuse_unk_ = json_bool(model, "fuse_unk", false, where);
  ignore_merges_ = json_bool(model, "ignore_merges", false, where);
}

void Bpe::find_characters() {
  for (const auto& [token, id] : vocabulary().ids()) {
    size_t position = 0;
    const char32_t code_point = token.empty() ? 0 : next_code_point(token, position);
    if (!token.empty() && position == token.size()) {
      characters_.set(code_point, static_cast<uint64_t>(id));
    }
  }
}

void Bpe::add_merge(const std::string& left, const std::string& right, uint32_t rank,
                    const std::string& at) {
  const auto id_of = [&](const std::string& token) {
    const int32_t id = vocabulary().id(token);
    if (id < 0) throw FormatError(at + ": " + in_quotes(token) + " is not in the vocabulary");
    return id;
  };
  const int32_t left_id = id_of(left), right_id = id_of(right), id = id_of(left + right);
  if (left.empty() || right.empty()) throw FormatError(at + ": merges an empty token");
  const auto key = uint64_t{static_cast<uint32_t>(left_id)} << 32 | static_cast<uint32_t>(right_id);
  merges_.set(key, uint64_t{rank} << 32 | static_cast<uint32_t>(id));
  size_t position = 0;
  const char32_t first = next_code_point(right, position);
  reached_.set(uint64_t{previous_code_point(left, left.size())} << 32 | first, 1);
}

void Bpe::read_merges(const Json& merges, const std::string& where) {
  if (!merges.is_array()) {
    throw FormatError(where + ": must be an array, found " + merges.type_name());
  }
  if (merges.size() > std::numeric_limits<int32_t>::max()) {
    throw FormatError(where + ": " + std::to_string(merges.size()) + " merges are too many");
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    const std::string at = where + "[" + std::to_string(i) + "]";
    const auto rank = static_cast<uint32_t>(i);
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(),
                rank, at);
      continue;
    }
    if (!merge.is_string()) throw FormatError(at + ": must be \"a b\" or [\"a\", \"b\"]");
    const std::string& text = merge.get_ref<const std::string&>();
    if (text.starts_with("#version")) continue;
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      throw FormatError(at + ": " + in_quotes(text) + " must be two tokens with one space between");
    }
    add_merge(text.substr(0, space), text.substr(space + 1), rank, at);
  }
}

}  // namespace curvq::io
