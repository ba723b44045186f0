// Text on its way from the caller to the tokens: pieces, and the bounds on the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer_pattern.h"

namespace curvq::io {

// Scratch space for one call at a time, and limits that hold for the call.
class TextWork {
 public:
  // Call first, for a text of so many bytes. Components may make it at most 32 times (and 1 MiB)
  // longer: compatibility decomposition reaches 11 times, byte-level symbols twice.
  void start(size_t text_bytes);
  // Throws ResourceError if a text becomes longer than that, or than 2^31 - 1 bytes.
  void check_size(size_t text_bytes) const;
  // Gives back the memory that a long text took.
  void trim();

  Matcher matcher;
  std::vector<Span> spans;

 private:
  size_t max_bytes_ = 0;
};

// Text that normalizers change.
struct NormalizedText {
  std::string text;
  // How many leading bytes come from the first character of the whole input (0: none do).
  size_t origin_bytes = 0;
};

constexpr int32_t kNoToken = -1;

struct Piece {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t origin_bytes = 0;  // as in NormalizedText
  int32_t token = kNoToken;   // an added token, which no component touches any more
};

// Pieces of one text, in order, none of them empty unless it is a token.
struct PieceList {
  std::string text;
  std::vector<Piece> pieces;

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

// The symbols that byte-level models (GPT-2) write bytes as: a printable character of Latin-1 for
// itself, U+0100... for the other bytes, in their order.
std::string_view byte_symbol(uint8_t byte);
// -1 if the code point is no such symbol.
int symbol_byte(char32_t code_point);

}  // namespace curvq::io
