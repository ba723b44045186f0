// Weights of 4 bits as the CUDA kernels of products with 16-bit activations want them; the host's
// side, which needs no CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

enum class Float16Type : uint8_t { kBFloat16, kFloat16 };

// One packed weight, or two that share their input and form act = silu(x gate^T) * (x up^T). The
// bytes are as large as the codes and scales themselves, but for rows padded to 32 and columns to
// 128; float scales take 4 bytes, zero points 1.
struct W4A16Weight {
  Scheme scheme;
  Float16Type type = Float16Type::kBFloat16;  // of x and out; the order of bits depends on it
  bool pair = false;
  int64_t rows = 0, cols = 0;  // of each matrix
  std::vector<uint8_t> codes, meta;
  int64_t row_blocks = 0, chunks = 0, groups = 0;
  int group_shift = 0;
  int scale_bias = 0;          // MXFP4: added to exponents, so that products stay in range
  float alpha[2] = {1, 1};     // what the sums of each matrix are multiplied with
  float divisors[2] = {1, 1};  // ScaleGrid::global_divisor of each

  // Bytes of `weight` that one product reads.
  int64_t bytes() const { return static_cast<int64_t>(codes.size() + meta.size()); }
};

// NVFP4, MXFP4, or INT4 with groups of 32, of 64 or more (powers of two), or of a whole row, with
// or without zero points. Throws UnsupportedError for other schemes, for MXFP4 scales more than
// 2^133 apart (bfloat16; 2^213 float16), for NaN scales, and for zero scales of codes that are not
// zero.
W4A16Weight pack_w4a16(const QuantizedMatrix& weight, Float16Type type);
// Throws UsageError unless both have the same shape and scheme.
W4A16Weight pack_w4a16_pair(const QuantizedMatrix& gate, const QuantizedMatrix& up,
                            Float16Type type);

// What was packed, exactly: codes, scales and zero points. `matrix` 0, or 1 for up of a pair.
QuantizedMatrix unpack_w4a16(const W4A16Weight& weight, int matrix = 0);

// The product in float64 from the decoded operands, in plain loops; what the kernels are tested
// against.
//   x     [m, cols] float16 or bfloat16 bits, row stride ldx
//   bias  [rows] float32 of each matrix, or null
//   out   [m, rows] float64: x W^T + bias; of a pair silu of the first times the second
//   bound [m, rows], may be null: how far a kernel's output may be off: one rounding of the output
//         type, and that of float32 sums, (cols + 32) 2^-23 sum_k |x_k w_k| + 2^-22 |bias|, carried
//         through silu and the product for a pair
void w4a16_reference(const W4A16Weight& weight, const uint16_t* x, int64_t m, int64_t ldx,
                     const float* const (&bias)[2], double* out, double* bound);

}  // namespace curvq
