#include "io/text.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace curvq::io {
namespace {

constexpr size_t kMaxPrinted = 200;
constexpr size_t kMaxNamesSearched = 20000;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Length of the sequence that starts at text[at], 0 if it is malformed.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0};
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return is_continuation(byte(1)) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;   // shorter forms exist below
    const uint8_t high = lead == 0xED ? 0x9F : 0xBF;  // surrogates above
    return byte(1) >= low && byte(1) <= high && is_continuation(byte(2)) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;  // beyond U+10FFFF above
    const bool tail = is_continuation(byte(2)) && is_continuation(byte(3));
    return byte(1) >= low && byte(1) <= high && tail ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out(text.substr(0, kMaxPrinted));
  for (char& c : out) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (text.size() > kMaxPrinted) {
    if (const auto bad = find_invalid_utf8(out)) out.resize(*bad);  // cut inside a character
    out += "...";
  }
  return out;
}

std::string nearest_names(const std::string& wanted, const std::vector<std::string_view>& names) {
  std::vector<std::pair<size_t, std::string_view>> ranked;
  const size_t farthest = std::max<size_t>(3, wanted.size() / 3);
  for (size_t i = 0; i < std::min(names.size(), kMaxNamesSearched); ++i) {
    if (names[i].size() > kMaxPrinted || wanted.size() > kMaxPrinted) continue;
    const size_t distance = edit_distance(wanted, names[i]);
    if (distance <= farthest) ranked.emplace_back(distance, names[i]);
  }
  std::sort(ranked.begin(), ranked.end());
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i) {
    out += (i == 0 ? "; nearest: " : ", ") + printable(ranked[i].second);
  }
  return out;
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace curvq::io
