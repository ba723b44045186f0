#include "kernels/cuda/w4a8_kernel.h"
#include "kernels/cuda/w4a8_launch.h"

namespace curvq::cuda {
namespace {

template <bool kF16>
cudaError_t launch(const W4A8Args& args, cudaStream_t stream) {
  using C = W4A8Config<kF16>;
  const cudaError_t error =
      cudaFuncSetAttribute(w4a8_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(C::kSharedBytes));
  if (error != cudaSuccess) return error;
  w4a8_kernel<C><<<static_cast<unsigned>(args.row_tiles * args.token_tiles), C::kThreads,
                   C::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
}

std::string text(cudaError_t error) {
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace

std::string launch_quantize_rows(bool f16, const QuantizeRowsArgs& args, void* stream) {
  const auto blocks = static_cast<unsigned>((args.m + kQuantizeRowWarps - 1) / kQuantizeRowWarps);
  const auto kernel = f16 ? quantize_rows_kernel<true> : quantize_rows_kernel<false>;
  kernel<<<blocks, kQuantizeRowWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return text(cudaGetLastError());
}

std::string launch_w4a8(bool f16, const W4A8Args& args, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  return text(f16 ? launch<true>(args, on) : launch<false>(args, on));
}

}  // namespace curvq::cuda
