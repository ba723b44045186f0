// The tokenizers of GGUF files: types of tokens, and how text is cut before merges.
#pragma once

#include <string>
#include <vector>

#include "curvq/io/json.h"

namespace curvq::io {

// tokenizer.ggml.token_type
enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// How text is cut before merges, by tokenizer.ggml.pre: an expression to isolate (may be null),
// then the byte level, which has an expression of its own in some.
struct PreTokenizer {
  const char* name;
  const char* pattern;
  bool digits;         // one by one
  bool byte_pattern;   // the byte level cuts by GPT-2's expression
  bool ignore_merges;  // a word that is a token is taken whole
  bool nfc;
};

const std::vector<PreTokenizer>& pre_tokenizers();
// Throws UnsupportedError listing those that are known.
const PreTokenizer& find_pre_tokenizer(const std::string& name, const std::string& path);
// As "pre_tokenizer" of tokenizer.json.
OrderedJson pre_tokenizer_json(const PreTokenizer& pre);
OrderedJson byte_level(bool add_prefix_space, bool use_regex);

}  // namespace curvq::io
