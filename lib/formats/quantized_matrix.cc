#include "curvq/formats/quantized_matrix.h"

#include <cstring>
#include <memory>
#include <utility>

#include "formats/codec.h"
#include "formats/row_loop.h"
#include "formats/rules/rule.h"
#include "formats/scale_grid.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

template <class Codec>
[[gnu::always_inline]] inline void code_loop(Codec codec, const float* __restrict quotients,
                                             int64_t count, uint8_t* __restrict codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = codec.code(quotients[i]);
}

CURVQ_SIMD_CLONES void code_e2m1(const float* quotients, int64_t count, uint8_t* codes) {
  code_loop(internal::E2M1Codec{}, quotients, count, codes);
}

CURVQ_SIMD_CLONES void code_e4m3(const float* quotients, int64_t count, uint8_t* codes) {
  code_loop(internal::E4M3Codec{}, quotients, count, codes);
}

CURVQ_SIMD_CLONES void code_int4(const float* quotients, int64_t count, uint8_t* codes) {
  code_loop(internal::IntCodec<4>{}, quotients, count, codes);
}

CURVQ_SIMD_CLONES void code_int8(const float* quotients, int64_t count, uint8_t* codes) {
  code_loop(internal::IntCodec<8>{}, quotients, count, codes);
}

// Two codes a byte; an odd last element leaves the high nibble zero.
CURVQ_SIMD_CLONES void pack_nibbles(const uint8_t* __restrict codes, int64_t count,
                                    uint8_t* __restrict packed) {
  for (int64_t i = 0; i < count / 2; ++i) {
    uint16_t pair;  // little end first: the even element is the low byte
    std::memcpy(&pair, codes + 2 * i, sizeof(pair));
    packed[i] = static_cast<uint8_t>(pair | pair >> 4);
  }
  if (count % 2 == 1) packed[count / 2] = codes[count - 1];
}

void quantize_row(const float* weight, int64_t r, QuantizedMatrix& matrix) {
  const ScaleGrid& grid = matrix.grid;
  const Scheme& scheme = grid.scheme;
  const int64_t cols = grid.cols;
  const auto quotients = std::make_unique_for_overwrite<float[]>(cols);
  internal::rule_of(scheme.rule).row_quotients(grid, r, weight, quotients.get());
  uint8_t* row_codes = matrix.codes.data() + r * matrix.row_bytes;
  if (scheme.element == ElementType::kE4M3) return code_e4m3(quotients.get(), cols, row_codes);
  if (scheme.bits == 8) return code_int8(quotients.get(), cols, row_codes);
  const auto codes = std::make_unique_for_overwrite<uint8_t[]>(cols);
  if (scheme.element == ElementType::kE2M1) {
    code_e2m1(quotients.get(), cols, codes.get());
  } else {
    code_int4(quotients.get(), cols, codes.get());
  }
  pack_nibbles(codes.get(), cols, row_codes);
}

}  // namespace

QuantizedMatrix::QuantizedMatrix(ScaleGrid g) : grid(std::move(g)) {
  row_bytes = (grid.cols * grid.scheme.bits + 31) / 32 * 4;
  codes.assign(grid.rows * row_bytes, 0);
}

uint8_t QuantizedMatrix::code(int64_t row, int64_t col) const {
  const uint8_t* row_codes = codes.data() + row * row_bytes;
  if (grid.scheme.bits == 8) return row_codes[col];
  return row_codes[col / 2] >> (4 * (col % 2)) & 15;
}

void QuantizedMatrix::set_code(int64_t row, int64_t col, uint8_t code) {
  uint8_t* row_codes = codes.data() + row * row_bytes;
  if (grid.scheme.bits == 8) {
    row_codes[col] = code;
    return;
  }
  const int shift = 4 * (col % 2);
  uint8_t& byte = row_codes[col / 2];
  byte = static_cast<uint8_t>((byte & ~(15 << shift)) | (code & 15) << shift);
}

QuantizedMatrix quantize_rtn(const float* weight, int64_t rows, int64_t cols, const Scheme& scheme,
                             float tensor_amax) {
  QuantizedMatrix matrix(internal::empty_grid(rows, cols, scheme));
  internal::fill_grid(weight, tensor_amax, matrix.grid,
                      [&](int64_t r) { quantize_row(weight + r * cols, r, matrix); });
  return matrix;
}

QuantizedMatrix quantize_rtn(const float* weight, ScaleGrid grid) {
  QuantizedMatrix matrix(std::move(grid));
  const int64_t cols = matrix.cols();
  internal::for_each_row(matrix.rows(), cols,
                         [&](int64_t r) { quantize_row(weight + r * cols, r, matrix); });
  return matrix;
}

}  // namespace curvq
