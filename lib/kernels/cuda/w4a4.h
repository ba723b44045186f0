// Checks and sizes of the W4A4 kernels; the device's side is in w4a4.cu.
#pragma once

#include "curvq/kernels/w4a4.h"
#include "kernels/cuda/w4a4_layout.h"

namespace curvq::internal {

// Throws UnsupportedError for what is neither NVFP4 nor MXFP4.
cuda::BlockScale block_scale(const Scheme& scheme);

struct W4A4Launch {
  cuda::BlockScale scale;
  int64_t x_code_bytes, x_scale_bytes;  // of the rounded activations
  cuda::QuantizeArgs quantize;          // all but the pointers
  cuda::W4A4Args product;
};

// How x [m, cols], row stride ldx, is rounded and multiplied. Throws UsageError for sizes and
// strides that no product can have, or that the kernels have not: ldx must be a multiple of 8
// elements, and NVFP4 must know the divisor of its inputs.
W4A4Launch plan_w4a4(const W4A4Matrix& weight, int64_t m, int64_t ldx, int64_t ldout);

}  // namespace curvq::internal
