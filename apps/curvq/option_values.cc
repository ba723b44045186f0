#include "option_values.h"

#include <charconv>
#include <cmath>

#include "curvq/core/error.h"

namespace curvq::cli {
namespace {

template <typename T>
std::optional<T> parse_whole(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(const std::string& text) { return parse_whole<int64_t>(text); }

std::optional<double> parse_number(const std::string& text) {
  const auto value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_number(text.substr(0, digits));
  if (!number) return std::nullopt;
  std::string unit = text.substr(digits);
  double factor = 1;
  if (!unit.empty()) {
    const size_t power = std::string("KMGT").find(unit[0]);
    const std::string rest = unit.substr(1);
    if (power == std::string::npos || (!rest.empty() && rest != "B" && rest != "iB")) {
      return std::nullopt;
    }
    factor = std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = *number * factor;
  if (bytes > 9e18 || (unit.empty() && bytes != std::floor(bytes))) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

bool parse_truth(const std::string& text, const std::string& place) {
  for (const char* yes : {"true", "yes", "on", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "0"}) {
    if (text == no) return false;
  }
  throw UsageError(place + " = " + text + ": must be true or false");
}

}  // namespace curvq::cli
