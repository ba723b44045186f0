// Gram matrices of activations with 16-bit products; needs no LibTorch.
#pragma once

#include <cstdint>

namespace curvq {

// Adds alpha X^T X to the lower triangle of `gram`, X rounded to integers of 12 bits and sign.
//   x     [n, k] float32, row stride ldx
//   gram  [k, k] float32, row-major; above the diagonal nothing is promised
// Each column's values of 256 rows share a scale amax / 4095, and the products of 64 rows are
// summed exactly. So the result is, up to float32 sums, the Gram matrix of inputs that differ from
// X by at most amax / 8190 of their column and 256 rows: positive semidefinite, and its diagonal
// right to about 2^-24 (amax / rms)^2. Columns with values that are not
// finite give NaN. Throws UsageError for negative sizes, a stride below k, or
// null pointers.
void accumulate_gram_int16(const float* x, int64_t n, int64_t k, int64_t ldx, float alpha,
                           float* gram);

}  // namespace curvq
