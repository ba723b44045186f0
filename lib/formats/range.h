// Smallest and largest value of a group.
#pragma once

#include <cstdint>

namespace curvq::internal {

struct Range {
  float min, max;  // zero included: min <= 0 <= max
};
// Of finite values; vectorised.
Range range_of(const float* values, int64_t count);

}  // namespace curvq::internal
