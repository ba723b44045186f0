// Checks and dispatch of the W4A16 kernels; the device's side is in w4a16.cu.
#pragma once

#include "curvq/kernels/w4a16.h"
#include "kernels/cuda/w4a16_layout.h"

namespace curvq::internal {

struct W4A16Launch {
  cuda::W4Format format;
  bool f16;
  int token_tiles;         // of 8 tokens, a block
  int64_t partial_floats;  // workspace of split k
  int64_t tickets;
  cuda::W4A16Args args;  // all but the pointers
};

// How x [m, cols], row stride ldx, is multiplied on a device with `multiprocessors`. k is split
// where there are too few tiles for them, the same way each time; `splits` > 0 asks for a number.
// Throws UsageError for sizes and strides that no product can have, or that the kernels have not:
// ldx must be a multiple of 8 elements.
W4A16Launch plan_w4a16(const W4A16Weight& weight, int64_t m, int64_t ldx, int64_t ldout,
                       int multiprocessors, int splits = 0);

}  // namespace curvq::internal
