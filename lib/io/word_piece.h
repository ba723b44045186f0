// WordPiece: words to token ids by the longest token, from left to right (Wu et al. 2016, as in
// BERT, Devlin et al. 2019).
#pragma once

#include <string>

#include "io/token_model.h"
#include "io/tokenizer_added_tokens.h"

namespace curvq::io {

class WordPiece : public TokenModel {
 public:
  WordPiece(const Json& model, const std::string& where);

  // The longest token that the word begins with, then the longest that the rest begins with among
  // those that continue a word (which the vocabulary has behind a prefix, "##"), and so on; the
  // unk_token alone for a word that cannot be covered or has too many characters.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  std::string where_;
  StringSet first_, continuing_;
  std::string unk_token_;
  size_t max_characters_ = 0;
};

}  // namespace curvq::io
