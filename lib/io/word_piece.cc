#include "io/word_piece.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "io/tokenizer_json.h"

namespace curvq::io {
namespace {

// Each byte of a word may be compared with so many of a token.
constexpr size_t kMaxTokenBytes = 1024;

}  // namespace

WordPiece::WordPiece(const Json& model, const std::string& where)
    : TokenModel(model, where),
      where_(where),
      unk_token_(json_string(model, "unk_token", "[UNK]", where)) {
  const std::string prefix = json_string(model, "continuing_subword_prefix", "##", where);
  const int64_t most = json_int(model, "max_input_chars_per_word", 100, where);
  if (most < 0) throw FormatError(where + ": \"max_input_chars_per_word\" must not be negative");
  max_characters_ = static_cast<size_t>(most);
  for (const auto& [token, id] : vocabulary().ids()) {
    const auto value = static_cast<size_t>(id);
    if (token.size() > kMaxTokenBytes) {
      throw UnsupportedError(where + ".vocab: " + in_quotes(token) + " has " +
                             std::to_string(token.size()) + " bytes, the limit is " +
                             std::to_string(kMaxTokenBytes));
    }
    if (!token.empty()) first_.add(token, value);
    if (token.size() > prefix.size() && token.starts_with(prefix))
      continuing_.add(token.substr(prefix.size()), value);
  }
  first_.finish();
  continuing_.finish();
}

void WordPiece::encode(std::string_view word, BpeScratch&, std::vector<int32_t>& ids) const {
  const auto starts_character = [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  };
  const auto characters = std::count_if(word.begin(), word.end(), starts_character);
  const size_t begin = ids.size();
  size_t covered = static_cast<size_t>(characters) > max_characters_ ? std::string::npos : 0;
  while (covered < word.size()) {
    const auto match = (covered == 0 ? first_ : continuing_).longest(word, covered);
    covered = match ? match->end : std::string::npos;
    if (match) ids.push_back(static_cast<int32_t>(match->value));
  }
  if (covered == word.size()) return;
  ids.resize(begin);
  ids.push_back(vocabulary().id(unk_token_));
  if (ids.back() < 0) {
    throw FormatError(where_ + ": " + in_quotes(word) + " needs unk_token " +
                      in_quotes(unk_token_) + ", which is not in the vocabulary");
  }
}

}  // namespace curvq::io
