// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace curvq {

// "134,515,008".
std::string with_separators(int64_t value);
// Powers of 1000 with three digits: "113 MB", "1.02 GB"; below 1000 exact: "812 B".
std::string bytes_text(int64_t bytes);
// "135 M", "1.24 B"; below 1000 exact.
std::string count_text(int64_t count);
// "0.42 s", "70 s", "12 min", "3.4 h".
std::string seconds_text(double seconds);
// `digits` significant digits, in scientific notation below 1e-3 and from 1e6; "nan", "inf",
// "-inf".
std::string number_text(double value, int digits = 4);

}  // namespace curvq
