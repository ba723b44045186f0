// Decoders of tokenizer.json: from the strings of tokens to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "curvq/io/json.h"
#include "io/tokenizer_text.h"

namespace curvq::io {

// Immutable, may be shared by threads.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // The text is the concatenation of what the last decoder leaves.
  virtual void apply(std::vector<std::string>& tokens, TextWork& work) const = 0;
};

// In the order in which they apply; empty for null.
std::vector<std::unique_ptr<Decoder>> make_decoders(const Json& root, const std::string& where);

}  // namespace curvq::io
