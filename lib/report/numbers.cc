#include "curvq/report/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "curvq/core/log.h"

namespace curvq {
namespace {

// Three digits and a prefix of `prefixes`, which are 1000 apart and begin at 1000.
std::string scaled(int64_t value, const char* const* prefixes, int num_prefixes) {
  double scaled = static_cast<double>(value) / 1000;
  int prefix = 0;
  while (std::fabs(scaled) >= 999.5 && prefix + 1 < num_prefixes) {
    scaled /= 1000;
    ++prefix;
  }
  const double magnitude = std::fabs(scaled);
  const int decimals = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return format("%.*f %s", decimals, scaled, prefixes[prefix]);
}

}  // namespace

std::string with_separators(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  if (std::llabs(bytes) < 1000) return std::to_string(bytes) + " B";
  static const char* const kPrefixes[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  return scaled(bytes, kPrefixes, 6);
}

std::string count_text(int64_t count) {
  if (std::llabs(count) < 1000) return std::to_string(count);
  static const char* const kPrefixes[] = {"K", "M", "B", "T"};
  return scaled(count, kPrefixes, 4);
}

std::string seconds_text(double seconds) {
  if (seconds >= 99.5 * 60) return number_text(seconds / 3600, 2) + " h";
  if (seconds >= 99.5) return number_text(seconds / 60, 2) + " min";
  return number_text(seconds, 2) + " s";
}

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  const double magnitude = std::fabs(value);
  if ((magnitude < 1e-3 || magnitude >= 1e6)) {
    return format("%.*e", digits - 1, value);
  }
  const int whole = static_cast<int>(std::floor(std::log10(magnitude)));
  return format("%.*f", std::max(0, digits - 1 - whole), value);
}

}  // namespace curvq
