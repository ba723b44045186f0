// Text for messages, and checks of text that files bring.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace curvq::io {

// `text` from a file made fit for a one-line message: control characters become '?', and what is
// longer than 200 bytes is cut with "...".
std::string printable(std::string_view text);

// Up to three of `names` that are closest to `wanted` by edit distance and not too far from it, as
// "; nearest: a, b"; empty if there are none.
std::string nearest_names(const std::string& wanted, const std::vector<std::string_view>& names);

// Offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7); nullopt
// if there is none.
std::optional<size_t> find_invalid_utf8(std::string_view text);

}  // namespace curvq::io
