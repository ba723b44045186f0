// Operands of 4 bits as block-scaled tensor cores read them: weights and rounded activations alike.
// The host's side, which needs no CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/kernels/w4a16.h"

namespace curvq {

// An NVFP4 or MXFP4 matrix with columns padded to 128 by zeros.
struct W4A4Matrix {
  Scheme scheme;
  int64_t rows = 0, cols = 0, chunks = 0;  // chunks of 128 columns
  std::vector<uint8_t> codes;              // [rows, chunks, 64], the first of two in the low bits
  // E4M3 or E8M0 in tiles of 128 rows by four groups, rows padded to 128, as cuBLASLt takes them
  // ("128x4"): see w4a4_scale_offset().
  std::vector<uint8_t> scales;
  float divisor = 1;        // ScaleGrid::global_divisor
  float input_divisor = 0;  // of the activations: 1 for MXFP4, QuantizedMatrix::input_scale for
                            // NVFP4, 0 where that is not known

  int64_t bytes() const { return static_cast<int64_t>(codes.size() + scales.size()); }
};

// Throws UnsupportedError for other schemes.
W4A4Matrix pack_w4a4(const QuantizedMatrix& matrix);
// What was packed, exactly.
QuantizedMatrix unpack_w4a4(const W4A4Matrix& packed);

// Where the scale of a row's group lies in W4A4Matrix::scales.
int64_t w4a4_scale_offset(const W4A4Matrix& packed, int64_t row, int64_t group);

// The product in float64 from the decoded operands, in plain loops; what the kernels are tested
// against. Throws UsageError unless both have the same scheme and columns.
//   bias  [weight.rows] float32, or null
//   out   [x.rows, weight.rows] float64: x W^T + bias
//   bound [x.rows, weight.rows], may be null: how far a kernel's output may be off: one rounding of
//         the output type, and that of float32 sums, (cols + 32) 2^-23 sum_k |x_k w_k| +
//         2^-22 |bias|
void w4a4_reference(const W4A4Matrix& weight, const W4A4Matrix& x, Float16Type type,
                    const float* bias, double* out, double* bound);

}  // namespace curvq
