// The values of options, from text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace curvq::cli {

// Decimal, nothing else around it.
std::optional<int64_t> parse_integer(const std::string& text);
// Finite; "0.01", "1e-3".
std::optional<double> parse_number(const std::string& text);
// 4096, 512M, 512MiB, 1.5G (powers of 1024), 5GB (powers of 1000).
std::optional<int64_t> parse_bytes(const std::string& text);
// true, yes, on, 1 or false, no, off, 0; otherwise UsageError beginning with `place`.
bool parse_truth(const std::string& text, const std::string& place);

}  // namespace curvq::cli
