// The models of tokenizer.json: what turns words into token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "curvq/io/json.h"

namespace curvq::io {

class BpeScratch;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Tokens and their ids, both unique.
class Vocabulary {
 public:
  // `vocab` is an object of ids by token; `where` names it in messages.
  Vocabulary(const Json& vocab, const std::string& where);
  Vocabulary(Vocabulary&&) = default;

  // -1 if there is none.
  int32_t id(std::string_view token) const;
  // nullptr if there is none.
  const std::string* token(int32_t id) const;
  int32_t max_id() const { return max_id_; }  // -1 if there are none
  const auto& ids() const { return ids_; }

 private:
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::unordered_map<int32_t, const std::string*> tokens_;  // into the keys of ids_
  int32_t max_id_ = -1;
};

// Immutable after loading, may be shared by threads.
class TokenModel {
 public:
  TokenModel(const Json& model, const std::string& where);
  virtual ~TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;

  // Appends the ids of one word. Throws FormatError if it needs an unk_token that the vocabulary
  // lacks.
  virtual void encode(std::string_view word, BpeScratch& scratch,
                      std::vector<int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

// `model` is the value of "model" in tokenizer.json; `where` names it in messages.
std::unique_ptr<TokenModel> make_token_model(const Json& model, const std::string& where);

}  // namespace curvq::io
