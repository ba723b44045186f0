// packed_gemm on a CUDA device. There in builds with CURVQ_CUDA=ON only (target
// curvq::kernels_cuda).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

// True if the driver and a device of compute capability 8.0 or more are here; else `why` (if not
// null) says what is missing.
bool cuda_available(std::string* why = nullptr);

// A packed weight in device memory. Not thread-safe.
class CudaPackedWeight {
 public:
  // Uploads codes, scales and zero points. Throws UnsupportedError without a device, ResourceError
  // if device memory does not suffice.
  explicit CudaPackedWeight(const QuantizedMatrix& weight);
  ~CudaPackedWeight();
  CudaPackedWeight(const CudaPackedWeight&) = delete;
  CudaPackedWeight& operator=(const CudaPackedWeight&) = delete;

  // out = x W^T as packed_gemm: host pointers, copied both ways.
  //   x [m, k] float32, out [m, n] float32, both dense
  // Each output is a float32 sum: 32 lanes sum every 32nd k, then a tree over the lanes; within
  // (k + 2) 2^-24 sum_k |x_k w_k| of the exact product.
  void multiply(const float* x, int64_t m, float* out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace curvq
