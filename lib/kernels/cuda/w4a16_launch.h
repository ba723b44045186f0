// What nvcc compiles of the W4A16 kernels and what g++ calls: C++17.
#pragma once

#include <string>

#include "kernels/cuda/w4a16_layout.h"

namespace curvq::cuda {

// Starts the product on `stream` (a cudaStream_t). All pointers of `args` are of the device.
// Returns an empty string or what went wrong.
std::string launch_w4a16(W4Format format, bool f16, int token_tiles, const W4A16Args& args,
                         void* stream);

// One translation unit each, for they take nvcc half a minute.
template <W4Format kFormat>
std::string launch_w4a16_format(bool f16, int token_tiles, const W4A16Args& args, void* stream);

}  // namespace curvq::cuda
