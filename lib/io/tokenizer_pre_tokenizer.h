// Pre-tokenizers of tokenizer.json: they cut text into the words that the model encodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "curvq/io/json.h"
#include "io/tokenizer_text.h"

namespace curvq::io {

// Immutable, may be shared by threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PieceList& list, TextWork& work) const = 0;
};

// In the order in which they apply; empty for null.
std::vector<std::unique_ptr<PreTokenizer>> make_pre_tokenizers(const Json& root,
                                                               const std::string& where);

}  // namespace curvq::io
