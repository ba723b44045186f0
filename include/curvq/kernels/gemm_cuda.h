// packed_gemm on a CUDA device. There in builds with CURVQ_CUDA=ON only (target
// curvq::kernels_cuda).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/kernels/w4a16.h"
#include "curvq/kernels/w4a4.h"
#include "curvq/kernels/w4a8.h"

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

// A weight of 4 bits in device memory for 16-bit activations, by tensor cores. Not thread-safe;
// products of one weight go to one stream at a time.
class CudaW4A16Weight {
 public:
  // Throws UnsupportedError without a device, ResourceError if device memory does not suffice.
  explicit CudaW4A16Weight(const W4A16Weight& weight);
  ~CudaW4A16Weight();
  CudaW4A16Weight(const CudaW4A16Weight&) = delete;
  CudaW4A16Weight& operator=(const CudaW4A16Weight&) = delete;

  // out = x W^T + bias, or of a pair silu(x gate^T + bias) * (x up^T + bias). Device pointers; does
  // not wait. Within the bound of w4a16_reference(); the same bytes each time on the same device.
  //   x     [m, cols] of the weight's type, on 16 bytes, row stride ldx, a multiple of 8
  //   bias  [rows] float32 of each matrix, or null
  //   out   [m, rows] of the weight's type, row stride ldout
  //   stream  a cudaStream_t, or null
  void multiply(const uint16_t* x, int64_t m, int64_t ldx, const float* const (&bias)[2],
                uint16_t* out, int64_t ldout, void* stream);

  // Which kernel runs for m rows and why, for people.
  std::string kernel(int64_t m) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// True if cuda_available() and the device has block-scaled mma.sync (compute capability 12.x); else
// `why` (if not null) says what is missing.
bool cuda_block_scaled_available(std::string* why = nullptr);

// A weight of 4 bits in device memory whose products round the activations to the same format, as
// W4A4 checkpoints ask for. Meant for many rows; for few, CudaW4A16Weight reads the same bytes and
// rounds nothing. Not thread-safe; products of one weight go to one stream at a time.
class CudaW4A4Weight {
 public:
  // `type`: of x and out. Throws UnsupportedError unless cuda_block_scaled_available(),
  // ResourceError if device memory does not suffice.
  CudaW4A4Weight(const W4A4Matrix& weight, Float16Type type);
  ~CudaW4A4Weight();
  CudaW4A4Weight(const CudaW4A4Weight&) = delete;
  CudaW4A4Weight& operator=(const CudaW4A4Weight&) = delete;

  // out = round(x) W^T + bias, round() as round_inputs(). Device pointers; does not wait. Within
  // the bound of w4a4_reference(); the same bytes each time on the same device.
  //   x     [m, cols], on 16 bytes, row stride ldx, a multiple of 8
  //   bias  [rows] float32, or null
  //   out   [m, rows], row stride ldout
  //   stream  a cudaStream_t, or null
  void multiply(const uint16_t* x, int64_t m, int64_t ldx, const float* bias, uint16_t* out,
                int64_t ldout, void* stream);

  // Which kernel runs and why, for people.
  std::string kernel() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// MXFP4 weights in device memory whose products round the activations to E4M3 with a scale a token.
// Otherwise as CudaW4A4Weight, within the bound of w4a8_reference().
class CudaW4A8Weight {
 public:
  CudaW4A8Weight(const W4A8Weight& weight, Float16Type type);
  ~CudaW4A8Weight();
  CudaW4A8Weight(const CudaW4A8Weight&) = delete;
  CudaW4A8Weight& operator=(const CudaW4A8Weight&) = delete;

  void multiply(const uint16_t* x, int64_t m, int64_t ldx, const float* bias, uint16_t* out,
                int64_t ldout, void* stream);
  std::string kernel() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace curvq
