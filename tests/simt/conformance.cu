#include "conformance.h"

namespace curvq::simt {

std::string run_conformance_device(const std::vector<uint32_t>& in, bool block_scaled,
                                   std::vector<uint32_t>* out) {
  uint32_t* device_in = nullptr;
  uint32_t* device_out = nullptr;
  out->resize(32 * kConformanceOut);
  cudaError_t error = cudaMalloc(&device_in, in.size() * 4);
  if (error == cudaSuccess) error = cudaMalloc(&device_out, out->size() * 4);
  if (error == cudaSuccess)
    error = cudaMemcpy(device_in, in.data(), in.size() * 4, cudaMemcpyHostToDevice);
  if (error == cudaSuccess) {
    const auto kernel = block_scaled ? conformance_kernel<true> : conformance_kernel<false>;
    kernel<<<1, 32, 32 * 16>>>(device_in, device_out);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess)
    error = cudaMemcpy(out->data(), device_out, out->size() * 4, cudaMemcpyDeviceToHost);
  cudaFree(device_in);
  cudaFree(device_out);
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace curvq::simt
