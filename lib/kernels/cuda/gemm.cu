#include <cuda_fp8.h>

#include "kernels/cuda/launch.h"

namespace curvq::cuda {
namespace {

constexpr int kWarp = 32, kWarps = 4;
constexpr int kRowsOfX = 8;  // of x that a warp multiplies with the weights it decodes

std::string text(cudaError_t error) {
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

__device__ float element(Element type, int bits, uint8_t code) {
  if (type == kInt) return bits == 4 ? int(code) - 8 : int(code) - 128;
  if (type == kE4M3) {
    __nv_fp8_e4m3 value;
    value.__x = code;
    return float(value);
  }
  // E2M1: s eem; below 1 the only values are 0 and 0.5.
  const int exponent = (code >> 1) & 3, mantissa = code & 1;
  const float magnitude =
      exponent == 0 ? 0.5f * mantissa : ldexpf(1.0f + 0.5f * mantissa, exponent - 1);
  return code & 8 ? -magnitude : magnitude;
}

// One warp an output column and kRowsOfX rows of x.
__global__ void gemm_kernel(PackedView w, const float* x, int64_t m, float* out) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int64_t first = int64_t(blockIdx.y) * kRowsOfX;
  if (row >= w.rows) return;
  float sums[kRowsOfX] = {};
  const uint8_t* codes = w.codes + row * w.row_bytes;
  for (int64_t k = lane; k < w.cols; k += kWarp) {
    const int64_t group = w.group_size == 0 ? 0 : k / w.group_size;
    const uint8_t code = w.bits == 8 ? codes[k] : (codes[k / 2] >> (k % 2 * 4)) & 15;
    const float zero = w.zero_points ? w.zero_points[row * w.groups + group] : 0.0f;
    const float value =
        (element(w.element, w.bits, code) - zero) * w.scales[row * w.groups + group];
    for (int i = 0; i < kRowsOfX; ++i) {
      if (first + i < m) sums[i] += x[(first + i) * w.cols + k] * value;
    }
  }
  for (int i = 0; i < kRowsOfX; ++i) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      sums[i] += __shfl_down_sync(~0u, sums[i], offset);
    if (lane == 0 && first + i < m) out[(first + i) * w.rows + row] = sums[i];
  }
}

}  // namespace

std::string device_status() {
  int count = 0, major = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return text(error);
  if (count == 0) return "no CUDA device";
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      major < 8) {
    return "the device's compute capability is below 8.0";
  }
  return "";
}

int multiprocessors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

std::string fill_zero(void* device, int64_t bytes) { return text(cudaMemset(device, 0, bytes)); }

std::string allocate(void** pointer, int64_t bytes) {
  return text(cudaMalloc(pointer, bytes > 0 ? bytes : 1));
}
void release(void* pointer) { cudaFree(pointer); }
std::string copy_to_device(void* device, const void* host, int64_t bytes) {
  return text(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}
std::string copy_to_host(void* host, const void* device, int64_t bytes) {
  return text(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

std::string gemm(const PackedView& weight, const float* x, int64_t m, float* out) {
  if (m == 0 || weight.rows == 0) return "";
  const dim3 blocks(unsigned((weight.rows + kWarps - 1) / kWarps),
                    unsigned((m + kRowsOfX - 1) / kRowsOfX));
  gemm_kernel<<<blocks, kWarps * kWarp>>>(weight, x, m, out);
  const cudaError_t launched = cudaGetLastError();
  return text(launched != cudaSuccess ? launched : cudaDeviceSynchronize());
}

}  // namespace curvq::cuda
