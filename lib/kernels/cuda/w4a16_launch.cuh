// Body of launch_w4a16_format(), which the w4a16_<format>.cu instantiate.
#pragma once

#include "kernels/cuda/w4a16_configs.h"
#include "kernels/cuda/w4a16_launch.h"

namespace curvq::cuda {

template <W4Format kFormat>
std::string launch_w4a16_format(bool f16, int token_tiles, const W4A16Args& args, void* stream) {
  cudaError_t error = cudaErrorInvalidConfiguration;
  with_config<kFormat>(f16, token_tiles, [&](auto config) {
    using C = decltype(config);
    error = cudaFuncSetAttribute(w4a16_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(C::kSharedBytes));
    if (error != cudaSuccess) return;
    const dim3 grid(static_cast<unsigned>(args.row_tiles * args.token_tiles), 1,
                    static_cast<unsigned>(args.splits));
    w4a16_kernel<C><<<grid, kThreads, C::kSharedBytes, static_cast<cudaStream_t>(stream)>>>(args);
    error = cudaGetLastError();
  });
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace curvq::cuda
