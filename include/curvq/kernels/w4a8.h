// MXFP4 weights for products with activations of E4M3 by block-scaled tensor cores; the host's
// side, which needs no CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/kernels/w4a16.h"

namespace curvq {

// Columns padded to 128 by zeros.
struct W4A8Weight {
  Scheme scheme;
  int64_t rows = 0, cols = 0, chunks = 0;  // chunks of 128 columns
  std::vector<uint8_t> codes;              // in the order in which lanes want them
  std::vector<uint8_t> scales;             // E8M0 in 128x4 tiles, as in W4A4Matrix

  int64_t bytes() const { return static_cast<int64_t>(codes.size() + scales.size()); }
};

// Throws UnsupportedError for what is not MXFP4.
W4A8Weight pack_w4a8(const QuantizedMatrix& matrix);
// What was packed, exactly.
QuantizedMatrix unpack_w4a8(const W4A8Weight& packed);

// Activations of E4M3, a float32 scale a token: round_inputs() of InputFormat::kFp8.
struct W4A8Inputs {
  int64_t rows = 0, chunks = 0;
  std::vector<uint8_t> codes;  // [rows, chunks * 128]
  std::vector<float> scales;   // [rows]
};

// The product in float64 from the decoded operands, in plain loops; what the kernels are tested
// against.
//   bias  [weight.rows] float32, or null
//   out   [x.rows, weight.rows] float64: x W^T + bias
//   bound [x.rows, weight.rows], may be null: one rounding of the output type, and that of float32
//         sums, (cols + 32) 2^-23 sum_k |x_k w_k| + 2^-22 |bias|
void w4a8_reference(const W4A8Weight& weight, const W4A8Inputs& x, Float16Type type,
                    const float* bias, double* out, double* bound);

}  // namespace curvq
