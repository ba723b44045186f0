#include "io/token_model.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "io/bpe.h"
#include "io/text.h"
#include "io/tokenizer_json.h"
#include "io/word_piece.h"

namespace curvq::io {
namespace {

// The largest vocabularies in use have 2^18 tokens; models size their embedding by the largest id.
constexpr int64_t kMaxIds = int64_t{1} << 24;

}  // namespace

Vocabulary::Vocabulary(const Json& vocab, const std::string& where) {
  if (!vocab.is_object()) {
    throw FormatError(where + ": must be an object, found " + vocab.type_name());
  }
  ids_.reserve(vocab.size());
  tokens_.reserve(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const bool small = value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{kMaxIds};
    if (!small) {
      throw FormatError(where + ": the id of " + in_quotes(token) +
                        " must be an integer from 0 to " + std::to_string(kMaxIds - 1) +
                        ", found " + printable(value.dump()));
    }
    const auto id = static_cast<int32_t>(value.get<uint64_t>());
    const auto [entry, is_new] = ids_.emplace(token, id);
    if (const auto [other, first] = tokens_.emplace(id, &entry->first); !first) {
      throw FormatError(where + ": " + in_quotes(*other->second) + " and " + in_quotes(token) +
                        " have the same id " + std::to_string(id));
    }
    max_id_ = std::max(max_id_, id);
  }
}

int32_t Vocabulary::id(std::string_view token) const {
  const auto entry = ids_.find(token);
  return entry == ids_.end() ? -1 : entry->second;
}

const std::string* Vocabulary::token(int32_t id) const {
  const auto entry = tokens_.find(id);
  return entry == tokens_.end() ? nullptr : entry->second;
}

TokenModel::TokenModel(const Json& model, const std::string& where)
    : vocabulary_(json_required(model, "vocab", where), where + ".vocab") {}

std::unique_ptr<TokenModel> make_token_model(const Json& model, const std::string& where) {
  if (!model.is_object()) throw FormatError(where + ": must be an object");
  const std::string type = json_string(model, "type", "BPE", where);
  if (type == "BPE") return std::make_unique<Bpe>(model, where);
  if (type == "WordPiece") return std::make_unique<WordPiece>(model, where);
  throw_unsupported(where, type, "BPE and WordPiece");
}

}  // namespace curvq::io
