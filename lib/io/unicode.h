// UTF-8, and the Unicode properties and mappings that tokenizers need. Text that is given as
// `text` must be well-formed UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace curvq::io {

// Replaces each maximal ill-formed subsequence by one U+FFFD (Unicode 15, section 3.9).
std::string repair_utf8(std::string_view bytes);

// The code point at `position` of well-formed UTF-8; moves `position` past it.
char32_t next_code_point(std::string_view text, size_t& position);
// The code point that ends at `position` > 0.
char32_t previous_code_point(std::string_view text, size_t position);
void append_utf8(char32_t code_point, std::string& text);

bool is_white_space(char32_t code_point);      // property White_Space
bool is_number(char32_t code_point);           // general categories Nd, Nl, No
bool is_punctuation(char32_t code_point);      // ASCII punctuation and general category P
bool is_mark(char32_t code_point);             // general category M
bool is_nonspacing_mark(char32_t code_point);  // general category Mn
bool is_control(char32_t code_point);          // general categories Cc, Cf, Co

// Full lower-case mapping of one code point, without context (a final sigma stays U+03C3).
void append_lowercase(char32_t code_point, std::string& text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Linear up to the sorting of combining marks, which is n log n for a run of n marks.
std::string unicode_normalize(std::string_view text, NormalForm form);

}  // namespace curvq::io
