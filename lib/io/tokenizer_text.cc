#include "io/tokenizer_text.h"

#include <algorithm>
#include <array>
#include <limits>

#include "curvq/core/error.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

constexpr size_t kMaxGrowth = 32;
constexpr size_t kMaxGrowthBytes = size_t{1} << 20;
constexpr size_t kMaxKeptSpans = 4096;
// Pieces hold positions in 32 bits; one bit is spare for sums.
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

struct ByteSymbols {
  std::array<std::string, 256> symbols;
  std::array<int, 512> bytes;

  ByteSymbols() {
    bytes.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const char32_t symbol = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(symbol, symbols[static_cast<size_t>(byte)]);
      bytes[symbol] = byte;
    }
  }
};

const ByteSymbols& byte_symbols() {
  static const ByteSymbols table;
  return table;
}

}  // namespace

void TextWork::start(size_t text_bytes) {
  matcher.start(text_bytes);
  const bool large = text_bytes > kMaxTextBytes / kMaxGrowth;
  max_bytes_ = large ? kMaxTextBytes : text_bytes * kMaxGrowth + kMaxGrowthBytes;
  check_size(text_bytes);
}

void TextWork::check_size(size_t text_bytes) const {
  if (text_bytes <= std::min(max_bytes_, kMaxTextBytes)) return;
  throw ResourceError("a text of " + std::to_string(text_bytes) +
                      " bytes, counted after the tokenizer's replacements, is above the limit of " +
                      std::to_string(std::min(max_bytes_, kMaxTextBytes)) +
                      "; encode it in parts, or check the tokenizer's normalizer");
}

void TextWork::trim() {
  if (spans.capacity() > kMaxKeptSpans) std::vector<Span>().swap(spans);
}

std::string_view byte_symbol(uint8_t byte) { return byte_symbols().symbols[byte]; }

int symbol_byte(char32_t code_point) {
  return code_point < byte_symbols().bytes.size() ? byte_symbols().bytes[code_point] : -1;
}

}  // namespace curvq::io
