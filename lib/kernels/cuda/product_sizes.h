// Sizes and strides that the CUDA kernels of products take.
#pragma once

#include <cstdint>

namespace curvq::internal {

// x [m, cols], row stride ldx, times a weight [rows, cols], into out with row stride ldout. Throws
// UsageError that begins with `kernel` for sizes and strides that no product can have, for more
// than `most` rows of x, and unless ldx is a multiple of 8 elements, so that rows start on 16
// bytes.
void check_product_sizes(const char* kernel, int64_t m, int64_t most, int64_t ldx, int64_t ldout,
                         int64_t rows, int64_t cols);

}  // namespace curvq::internal
