#include "io/bert_characters.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "io/unicode.h"

namespace curvq::io {
namespace {

// First and last of ranges whose punctuation, nonspacing marks and format characters are all newer
// than Unicode 8, made by comparing the properties of Unicode 15 with what `tokenizers` 0.23 does.
constexpr std::pair<char32_t, char32_t> kNewer[] = {
    {0x061D, 0x061D},   {0x07FD, 0x07FD},   {0x0890, 0x08E2},   {0x09FD, 0x09FE},
    {0x0A76, 0x0A76},   {0x0AFA, 0x0AFF},   {0x0B55, 0x0B55},   {0x0C04, 0x0C3C},
    {0x0C77, 0x0C77},   {0x0C84, 0x0C84},   {0x0D00, 0x0D00},   {0x0D3B, 0x0D3C},
    {0x0D81, 0x0D81},   {0x0EBA, 0x0EBA},   {0x0ECE, 0x0ECE},   {0x180F, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2E5D},
    {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
    {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111C9, 0x111C9},
    {0x111CF, 0x111CF}, {0x1123E, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1145E},
    {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x13455},
    {0x16E97, 0x16F4F}, {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF},
    {0x1E944, 0x1E95F},
};

bool is_newer(char32_t c) {
  const auto after =
      std::upper_bound(std::begin(kNewer), std::end(kNewer), c,
                       [](char32_t x, const auto& range) { return x < range.first; });
  return after != std::begin(kNewer) && c <= std::prev(after)->second;
}

}  // namespace

bool is_bert_control(char32_t c) { return is_control(c) && !is_newer(c); }

bool is_bert_mark(char32_t c) {
  return (is_nonspacing_mark(c) && !is_newer(c)) || c == 0x1734;  // spacing since Unicode 14
}

bool is_bert_punctuation(char32_t c) {
  // Those two have become a symbol and a mark.
  return (is_punctuation(c) && !is_newer(c)) || c == 0x166D || c == 0x111C9;
}

bool is_bert_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

}  // namespace curvq::io
