// What nvcc compiles of the W4A8 kernels and what g++ calls: C++17.
#pragma once

#include <string>

#include "kernels/cuda/w4a8_layout.h"

namespace curvq::cuda {

// Start on `stream` (a cudaStream_t). All pointers of `args` are of the device. Return an empty
// string or what went wrong. The product needs a device as launch_w4a4() does.
std::string launch_quantize_rows(bool f16, const QuantizeRowsArgs& args, void* stream);
std::string launch_w4a8(bool f16, const W4A8Args& args, void* stream);

}  // namespace curvq::cuda
