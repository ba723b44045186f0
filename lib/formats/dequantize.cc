#include <algorithm>
#include <array>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/codec.h"
#include "formats/row_loop.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

// Values of the two elements of a byte.
template <class Codec>
constexpr std::array<std::array<float, 2>, 256> pair_table() {
  std::array<std::array<float, 2>, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = {Codec{}.value(byte & 15), Codec{}.value(byte >> 4)};
  }
  return table;
}

template <class Codec>
constexpr std::array<float, 256> byte_table() {
  std::array<float, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) table[byte] = Codec{}.value(byte);
  return table;
}

constexpr auto kE2M1Pairs = pair_table<internal::E2M1Codec>();
constexpr auto kInt4Pairs = pair_table<internal::IntCodec<4>>();
constexpr auto kE4M3Bytes = byte_table<internal::E4M3Codec>();
constexpr auto kInt8Bytes = byte_table<internal::IntCodec<8>>();

// Values of columns [begin, end) of a row of codes, without scale and zero point.
void decode_row(const Scheme& scheme, const uint8_t* codes, int64_t begin, int64_t end,
                float* out) {
  if (scheme.bits == 8) {
    const auto& table = scheme.element == ElementType::kE4M3 ? kE4M3Bytes : kInt8Bytes;
    for (int64_t c = begin; c < end; ++c) *out++ = table[codes[c]];
    return;
  }
  const auto& table = scheme.element == ElementType::kE2M1 ? kE2M1Pairs : kInt4Pairs;
  int64_t c = begin;
  if (c % 2 == 1 && c < end) *out++ = table[codes[c++ / 2]][1];
  for (; c + 1 < end; c += 2, out += 2) {
    std::memcpy(out, table[codes[c / 2]].data(), 2 * sizeof(float));
  }
  if (c < end) *out = table[codes[c / 2]][0];
}

CURVQ_SIMD_CLONES void scale_values(float scale, float zero_point, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = (values[i] - zero_point) * scale;
}

// Many groups of a size that the compiler knows: short loops would cost more than their work.
template <int64_t kGroupSize>
[[gnu::always_inline]] inline void scale_groups(const float* __restrict scales, int64_t groups,
                                                float* __restrict values) {
  for (int64_t g = 0; g < groups; ++g) {
    // Vectorise this loop, not the one around it, whose elements are far apart.
#pragma omp simd
    for (int64_t i = 0; i < kGroupSize; ++i) values[g * kGroupSize + i] *= scales[g];
  }
}

CURVQ_SIMD_CLONES void scale_groups_of_16(const float* scales, int64_t groups, float* values) {
  scale_groups<16>(scales, groups, values);
}

CURVQ_SIMD_CLONES void scale_groups_of_32(const float* scales, int64_t groups, float* values) {
  scale_groups<32>(scales, groups, values);
}

}  // namespace

void dequantize_row(const QuantizedMatrix& matrix, int64_t row, int64_t begin, int64_t end,
                    float* out) {
  if (begin < 0 || begin > end || end > matrix.cols() || row < 0 || row >= matrix.rows()) {
    throw UsageError(format("columns %ld to %ld of row %ld of a matrix of %ld rows, %ld columns",
                            long{begin}, long{end}, long{row}, long{matrix.rows()},
                            long{matrix.cols()}));
  }
  const ScaleGrid& grid = matrix.grid;
  decode_row(grid.scheme, matrix.codes.data() + row * matrix.row_bytes, begin, end, out);
  const int64_t group_size = grid.scheme.group_size == 0 ? grid.cols : grid.scheme.group_size;
  if ((group_size == 16 || group_size == 32) && grid.zero_points.empty() &&
      begin % group_size == 0 && end % group_size == 0) {
    const float* scales = grid.scales.data() + row * grid.groups + begin / group_size;
    const int64_t groups = (end - begin) / group_size;
    return group_size == 16 ? scale_groups_of_16(scales, groups, out)
                            : scale_groups_of_32(scales, groups, out);
  }
  for (int64_t c = begin; c < end;) {
    const int64_t g = c / group_size;
    const int64_t next = std::min(end, (g + 1) * group_size);
    scale_values(grid.scale(row, g), static_cast<float>(grid.zero_point(row, g)), next - c,
                 out + (c - begin));
    c = next;
  }
}

void dequantize(const QuantizedMatrix& matrix, float* out) {
  const int64_t cols = matrix.cols();
  internal::for_each_row(matrix.rows(), cols,
                         [&](int64_t r) { dequantize_row(matrix, r, 0, cols, out + r * cols); });
}

}  // namespace curvq
