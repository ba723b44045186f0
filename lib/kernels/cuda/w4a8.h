// Checks and sizes of the W4A8 kernels; the device's side is in w4a8.cu.
#pragma once

#include "curvq/kernels/w4a8.h"
#include "kernels/cuda/w4a8_layout.h"

namespace curvq::internal {

struct W4A8Launch {
  cuda::QuantizeRowsArgs quantize;  // all but the pointers
  cuda::W4A8Args product;
};

// How x [m, cols], row stride ldx, is rounded and multiplied. Throws UsageError for sizes and
// strides that no product can have, or that the kernels have not: ldx must be a multiple of 8
// elements.
W4A8Launch plan_w4a8(const W4A8Weight& weight, int64_t m, int64_t ldx, int64_t ldout);

}  // namespace curvq::internal
