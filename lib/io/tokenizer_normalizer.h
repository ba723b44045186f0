// Normalizers of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "curvq/io/json.h"
#include "io/tokenizer_text.h"

namespace curvq::io {

// Immutable, may be shared by threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, TextWork& work) const = 0;
};

// In the order in which they apply; empty for null.
std::vector<std::unique_ptr<Normalizer>> make_normalizers(const Json& root,
                                                          const std::string& where);

}  // namespace curvq::io
