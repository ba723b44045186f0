// Loops over the groups of a row; vectorised for groups of 16 and 32, where a call for each would
// cost more than its work.
#pragma once

#include <cstdint>

namespace curvq::internal {

// to[g] = max_abs() of group g.
void group_magnitudes(const float* values, int64_t groups, int64_t group_size, float* to);

// out = values / scales[g].
void divide_groups(const float* values, const float* scales, int64_t groups, int64_t group_size,
                   float* out);

}  // namespace curvq::internal
