#include "io/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace curvq::io {
namespace {

struct Sequence {
  size_t length;
  bool well_formed;
};

// The well-formed sequence at `position`, or the longest start of one that is cut short there (one
// byte at least). Table 3-7 of the Unicode standard.
Sequence sequence_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const uint8_t lead = byte(position);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    const uint8_t next = byte(position + i);
    if (next < low || next > high) return {i, false};
    low = 0x80, high = 0xBF;
  }
  return {length, true};
}

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

uint16_t combining_class(utf8proc_int32_t code_point) {
  return static_cast<uint16_t>(utf8proc_get_property(code_point)->combining_class);
}

void decompose(std::string_view text, bool compatibility, std::vector<utf8proc_int32_t>& out) {
  const int form = compatibility ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form);
  // The longest decomposition, of U+FDFA, has 18 code points.
  utf8proc_int32_t buffer[32];
  for (size_t position = 0; position < text.size();) {
    const auto code_point = static_cast<utf8proc_int32_t>(next_code_point(text, position));
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code_point, buffer, 32, options, &boundary);
    if (count < 0 || count > 32) {
      out.push_back(code_point);
    } else {
      out.insert(out.end(), buffer, buffer + count);
    }
  }
}

// Canonical ordering. utf8proc's own is an insertion sort, quadratic in the number of marks.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  for (size_t begin = 0; begin < points.size();) {
    if (combining_class(points[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(begin),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t position = 0; position < bytes.size();) {
    const Sequence sequence = sequence_at(bytes, position);
    if (sequence.well_formed) {
      out.append(bytes.substr(position, sequence.length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    position += sequence.length;
  }
  return out;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const auto tail = [&](size_t i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  const uint8_t lead = byte(0);
  char32_t code_point = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    code_point = (char32_t{lead} & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    length = 4;
  } else if (lead >= 0xE0) {
    code_point = (char32_t{lead} & 0x0F) << 12 | tail(1) << 6 | tail(2);
    length = 3;
  } else if (lead >= 0x80) {
    code_point = (char32_t{lead} & 0x1F) << 6 | tail(1);
    length = 2;
  }
  position += length;
  return code_point;
}

char32_t previous_code_point(std::string_view text, size_t position) {
  do {
    --position;
  } while ((static_cast<uint8_t>(text[position]) & 0xC0) == 0x80);
  return next_code_point(text, position);
}

void append_utf8(char32_t code_point, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_number(char32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  const utf8proc_category_t found = category(code_point);
  return found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const utf8proc_category_t found = category(c);
  return found >= UTF8PROC_CATEGORY_PC && found <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code_point) {
  const utf8proc_category_t found = category(code_point);
  return found >= UTF8PROC_CATEGORY_MN && found <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_MN;
}

bool is_control(char32_t code_point) {
  const utf8proc_category_t found = category(code_point);
  return found == UTF8PROC_CATEGORY_CC || found == UTF8PROC_CATEGORY_CF ||
         found == UTF8PROC_CATEGORY_CO;
}

void append_lowercase(char32_t code_point, std::string& text) {
  // The only code point whose lower case is two.
  if (code_point == 0x130) {
    text.append("i\xCC\x87");
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
                text);
  }
}

std::string unicode_normalize(std::string_view text, NormalForm form) {
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto ascii = [&](size_t i) { return static_cast<uint8_t>(text[i]) < 0x80; };
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  for (size_t position = 0; position < text.size();) {
    // ASCII characters are starters that never combine with what precedes them: only the last one
    // before other text takes part in its normalisation.
    size_t begin = position;
    while (begin < text.size() && ascii(begin)) ++begin;
    if (begin < text.size() && begin > position) --begin;
    out.append(text.substr(position, begin - position));
    if (begin == text.size()) break;
    size_t end = begin + 1;
    while (end < text.size() && !ascii(end)) ++end;
    points.clear();
    decompose(text.substr(begin, end - begin), compatibility, points);
    order_marks(points);
    if (compose) {
      const utf8proc_ssize_t count = utf8proc_normalize_utf32(
          points.data(), static_cast<utf8proc_ssize_t>(points.size()),
          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (count >= 0) points.resize(static_cast<size_t>(count));
    }
    for (const utf8proc_int32_t point : points) append_utf8(static_cast<char32_t>(point), out);
    position = end;
  }
  return out;
}

}  // namespace curvq::io
