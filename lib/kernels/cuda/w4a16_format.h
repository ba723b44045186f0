// Which kernel family a scheme belongs to.
#pragma once

#include "curvq/kernels/w4a16.h"
#include "kernels/cuda/w4a16_layout.h"

namespace curvq::internal {

// Throws UnsupportedError naming the schemes that have kernels.
cuda::W4Format w4_format(const Scheme& scheme);

}  // namespace curvq::internal
