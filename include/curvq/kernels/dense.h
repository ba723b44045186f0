// A dense matrix that stays in bfloat16, times one vector: the output head of a decoder.
#pragma once

#include <cstdint>

namespace curvq {

// out = W x
//   weight  [n, k] row-major bfloat16, as its bits
//   x       [k] float32
//   out     [n] float32; must not overlap x
// Products and sums in float32: 16 sums of every sixteenth column, added pairwise at the end, so
// that the bits depend neither on the number of threads nor on the instruction set. With u = 2^-24
// the error is at most (k / 16 + 6) u sum_k |x_k w_k|, but for underflow. Throws UsageError for
// negative sizes or a null pointer.
void gemv_bf16(const uint16_t* weight, int64_t n, int64_t k, const float* x, float* out);

}  // namespace curvq
