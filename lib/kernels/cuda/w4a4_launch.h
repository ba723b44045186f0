// What nvcc compiles of the W4A4 kernels and what g++ calls: C++17.
#pragma once

#include <string>

#include "kernels/cuda/w4a4_layout.h"

namespace curvq::cuda {

// Start on `stream` (a cudaStream_t). All pointers of `args` are of the device. Return an empty
// string or what went wrong.
std::string launch_quantize(BlockScale scale, bool f16, const QuantizeArgs& args, void* stream);
// Needs a device of compute capability 12.x and code for it: see block_scaled_status().
std::string launch_w4a4(BlockScale scale, bool f16, const W4A4Args& args, void* stream);

// Empty if block-scaled mma.sync can run on the current device, or why not.
std::string block_scaled_status();

}  // namespace curvq::cuda
