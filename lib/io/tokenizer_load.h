// The components of a tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "curvq/io/json.h"
#include "io/token_model.h"
#include "io/tokenizer_added_tokens.h"
#include "io/tokenizer_decoder.h"
#include "io/tokenizer_normalizer.h"
#include "io/tokenizer_pre_tokenizer.h"

namespace curvq::io {

struct TokenizerParts {
  std::unique_ptr<TokenModel> model;
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  AddedTokens added;
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers;
  std::vector<std::unique_ptr<Decoder>> decoders;
  bool has_decoder = false;  // else tokens are joined with spaces
  // What the post-processor puts before and after the text.
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
};

// `origin` names the file in messages.
TokenizerParts load_tokenizer(const Json& root, const std::string& origin);

}  // namespace curvq::io
