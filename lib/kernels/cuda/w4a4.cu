#include "kernels/cuda/quantize_kernel.h"
#include "kernels/cuda/w4a4_kernel.h"
#include "kernels/cuda/w4a4_launch.h"

namespace curvq::cuda {
namespace {

template <class Run>
void with_types(BlockScale scale, bool f16, const Run& run) {
  if (scale == BlockScale::kE4M3)
    f16 ? run(W4A4Config<BlockScale::kE4M3, true>{}) : run(W4A4Config<BlockScale::kE4M3, false>{});
  else
    f16 ? run(W4A4Config<BlockScale::kE8M0, true>{}) : run(W4A4Config<BlockScale::kE8M0, false>{});
}

std::string text(cudaError_t error) {
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace

std::string launch_quantize(BlockScale scale, bool f16, const QuantizeArgs& args, void* stream) {
  with_types(scale, f16, [&](auto config) {
    using C = decltype(config);
    const dim3 grid(static_cast<unsigned>(args.chunks * scale_words(C::kScale)),
                    static_cast<unsigned>((args.m + kW4A4Rows - 1) / kW4A4Rows * kQuantizeTilesY));
    quantize_kernel<C::kScale, C::kF16>
        <<<grid, kQuantizeThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  });
  return text(cudaGetLastError());
}

std::string launch_w4a4(BlockScale scale, bool f16, const W4A4Args& args, void* stream) {
  cudaError_t error = cudaErrorInvalidConfiguration;
  with_types(scale, f16, [&](auto config) {
    using C = decltype(config);
    error = cudaFuncSetAttribute(w4a4_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(C::kSharedBytes));
    if (error != cudaSuccess) return;
    w4a4_kernel<C><<<static_cast<unsigned>(args.row_tiles * args.token_tiles), C::kThreads,
                     C::kSharedBytes, static_cast<cudaStream_t>(stream)>>>(args);
    error = cudaGetLastError();
  });
  return text(error);
}

std::string block_scaled_status() {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return text(error);
  if (major != 12)
    return "block-scaled mma.sync needs compute capability 12.x, the device has " +
           std::to_string(major) + "." + std::to_string(minor);
  cudaFuncAttributes attributes;
  error = cudaFuncGetAttributes(&attributes, w4a4_kernel<W4A4Config<BlockScale::kE4M3, false>>);
  if (error != cudaSuccess) return text(error);
  return attributes.binaryVersion / 10 == 12 ? "" : "curvq was built without code for sm_120f";
}

}  // namespace curvq::cuda
