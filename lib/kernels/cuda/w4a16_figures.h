// What the compiler makes of the W4A16 kernels, as committed in w4a16_figures.inc.
#pragma once

#include "kernels/cuda/w4a16_format.h"

namespace curvq::cuda {

struct W4A16Figure {
  const char* format;  // nvfp4, mxfp4, int4_group32, int4_group64
  const char* type;    // bf16, f16: of x and out
  int tokens;          // of a tile
  const char* architecture;
  // Of the main loop of a warp.
  int chunks, instructions, integer, hmma;
  int registers;  // a thread
};

// Throws std::logic_error where there is none.
const W4A16Figure& w4a16_figure(W4Format format, bool f16, int tokens, const char* architecture);

// Shared memory of a block.
int w4a16_shared_bytes(W4Format format, bool f16, int tokens);

}  // namespace curvq::cuda
