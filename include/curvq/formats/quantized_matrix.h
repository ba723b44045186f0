// A quantized weight matrix, its scales, and the rounding between it and float32.
//
//   weight[r, c] = (element(code[r, c]) - zero_point[r, g]) * scale[r, g],   g = c / group_size
//
// where element() is the E2M1, E4M3 or integer value of a code. Quantizers (RTN, GPTQ, ...) first
// fix a ScaleGrid, then choose codes on it.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/scheme.h"

namespace curvq {

// Scales and zero points of a [rows, cols] matrix. All vectors are row-major [rows, groups].
struct ScaleGrid {
  Scheme scheme;
  int64_t rows = 0, cols = 0, groups = 0;
  // NVFP4: what the tensor's E4M3 scales are divided by: 2688 / amax, by kFourOverSix 1536 / amax,
  // by kLlamaCpp 1. 1 elsewhere.
  float global_divisor = 1.0f;
  // NVFP4: the largest magnitude that decided global_divisor; 0 where it is not known (grids that
  // were read from a file).
  float tensor_amax = 0.0f;
  // E4M3 or E8M0 scales as stored; empty for float scales.
  std::vector<uint8_t> scale_codes;
  // The scale that a code is multiplied with, in float32: the float scale rounded to
  // scheme.scale_dtype, 2^(code-127), or e4m3(code) / global_divisor (one float32 division). Never
  // 0; negative only for integers by kLlamaCpp.
  std::vector<float> scales;
  // Integers only, within [min_code, max_code]; empty when symmetric.
  std::vector<int8_t> zero_points;

  float scale(int64_t row, int64_t group) const { return scales[row * groups + group]; }
  int zero_point(int64_t row, int64_t group) const {
    return zero_points.empty() ? 0 : zero_points[row * groups + group];
  }
};

// Codes of a matrix on its grid. Each row starts on a byte that is a multiple of four; 4-bit codes
// are two a byte, element 2i in the low nibble; spare bits are zero.
//   kE2M1: sign << 3 | index;  kE4M3: the byte;  kInt: code + 8 (4 bits) or code + 128 (8 bits).
// For 4 bits this equals the memory of compressed-tensors' weight_packed.
struct QuantizedMatrix {
  ScaleGrid grid;
  int64_t row_bytes = 0;
  std::vector<uint8_t> codes;  // [rows, row_bytes]
  // What round_inputs() takes for scheme().inputs; 0 where those need none.
  float input_scale = 0;

  explicit QuantizedMatrix(ScaleGrid g);
  QuantizedMatrix() = default;

  int64_t rows() const { return grid.rows; }
  int64_t cols() const { return grid.cols; }
  const Scheme& scheme() const { return grid.scheme; }

  uint8_t code(int64_t row, int64_t col) const;
  void set_code(int64_t row, int64_t col, uint8_t code);

  // Bytes of codes, scales, zero points, tensor scale and input scale as stored.
  int64_t stored_bytes() const { return grid.scheme.stored_bytes(grid.rows, grid.cols); }
};

// Largest magnitude; NaN if any element is NaN, infinity if any is infinite.
float max_abs(const float* values, int64_t count);

// Scales of `weight` [rows, cols] float32, row-major, by scheme.rule.
//   tensor_amax  the largest magnitude that decides NVFP4's tensor scale: this matrix's own, or the
//                largest over layers that loaders fuse (q/k/v, gate/up). Ignored by other schemes.
// A group of zeros gets a scale that decodes to zeros and that loaders accept (finite, not zero).
// Throws NumericalError for a weight that is not finite (naming row and column), UsageError if the
// group does not divide cols, UnsupportedError for a rule that the scheme has not.
ScaleGrid make_scale_grid(const float* weight, int64_t rows, int64_t cols, const Scheme& scheme,
                          float tensor_amax);

// Rounds to nearest (ties to even) on a fixed grid, clamped to the element's range:
// element(code) = rn(w / scale + zero_point).
uint8_t encode(const Scheme& scheme, float weight, float scale, int zero_point);
// (element(code) - zero_point) * scale, one float32 multiplication.
float decode(const Scheme& scheme, uint8_t code, float scale, int zero_point);

// `count` rows' elements of one column: rounds weight[i] with scale[i] (and zero_point[i], may be
// null) into codes[i] and, dequantized, into rounded[i]. What GPTQ's column loop calls; vectorised.
void encode_column(const Scheme& scheme, const float* weight, const float* scale,
                   const int8_t* zero_point, int64_t count, uint8_t* codes, float* rounded);

// Round to nearest of a whole matrix: make_scale_grid, then every code with the quotients and ties
// of scheme.rule (kCompressedTensors rounds quotients to source_dtype, for instance).
QuantizedMatrix quantize_rtn(const float* weight, int64_t rows, int64_t cols, const Scheme& scheme,
                             float tensor_amax);
// The same on a grid that is given.
QuantizedMatrix quantize_rtn(const float* weight, ScaleGrid grid);

// out [rows, cols] float32.
void dequantize(const QuantizedMatrix& matrix, float* out);
// One row, columns [begin, end), out [end - begin].
void dequantize_row(const QuantizedMatrix& matrix, int64_t row, int64_t begin, int64_t end, float* out);

}  // namespace curvq
