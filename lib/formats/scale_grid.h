// Making a grid row by row, for what goes on with a row while it is in the cache.
#pragma once

#include <functional>

#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

// A grid for all but its scales. Throws as make_scale_grid() for what needs no weights.
ScaleGrid empty_grid(int64_t rows, int64_t cols, const Scheme& scheme);

// Fills in the scales of `grid`, an empty_grid(), and calls done(row) (may be null) behind each row
// whose weights are finite. Throws as make_scale_grid() for weights and scales that are not.
void fill_grid(const float* weight, float tensor_amax, ScaleGrid& grid,
               const std::function<void(int64_t)>& done);

}  // namespace curvq::internal
