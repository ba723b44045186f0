// Masks that keep what matters most.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/compress/prune.h"

namespace curvq::internal {

// Positions of the `count` smallest values; of equal ones the first.
std::vector<int64_t> smallest(const std::vector<float>& values, int64_t count);

// [rows, cols], 1 where a saliency is among the largest of its group (N:M), of its row
// (`within_rows`) or of all; exactly as many as the pattern says.
std::vector<uint8_t> mask_of_largest(const std::vector<float>& saliencies, int64_t rows,
                                     int64_t cols, const SparsityPattern& pattern,
                                     bool within_rows);

}  // namespace curvq::internal
