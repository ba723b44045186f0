#include "kernels/linear_input.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/dtype.h"
#include "formats/simd_clones.h"
#include "kernels/gemm_path.h"
#include "kernels/prepacked_weight.h"

namespace curvq {
namespace internal {
namespace {

constexpr int64_t kSegmentColumns = kSegmentLines * kLineColumns;
constexpr int kHigh = 127 * 128 + 63;  // the largest integer of 15 bits that splits into two bytes
constexpr float kMostIntegerInput = 0x1p110f;  // from here on ByteTile's shifts would be infinite

// One segment: bytes, for 15 bits followed by those of the low parts; scale and sums of the bytes.
struct RoundedSegments {
  int8_t* high;
  int8_t* low;  // for 15 bits
  float* scales;
  int32_t* high_sums;
  int32_t* low_sums;
};

template <int kWidth, bool kSplit>
[[gnu::always_inline]] inline void round_segments(const float* x, int64_t count,
                                                  const RoundedSegments& to) {
  constexpr float kLargest = kSplit ? kHigh : 127;
  for (int64_t s = 0; s < count; ++s, x += kWidth) {
    uint32_t largest = 0;  // as integers, NaN is larger than infinity
    for (int c = 0; c < kWidth; ++c)
      largest = std::max(largest, std::bit_cast<uint32_t>(x[c]) & 0x7fffffffu);
    const float amax = std::bit_cast<float>(largest);
    const bool finite = largest < std::bit_cast<uint32_t>(kMostIntegerInput);
    const bool usable = finite && amax >= kLargest * std::numeric_limits<float>::min();
    // Up to a number of 22 bits.
    const float scale = std::bit_cast<float>((std::bit_cast<uint32_t>(amax / kLargest) + 3) & ~3u);
    const float inverse = usable ? 1 / scale : 0.0f;
    to.scales[s] = usable ? scale : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    int32_t integers[kWidth];
    for (int c = 0; c < kWidth; ++c) {
      const int32_t rounded = std::bit_cast<int32_t>(x[c] * inverse + kFloatBaseValue) - kFloatBase;
      integers[c] = finite ? rounded : 0;
    }
    int32_t high_sum = 0, low_sum = 0;
    for (int c = 0; c < kWidth; ++c) {
      const int32_t high = kSplit ? (integers[c] + 64) >> 7 : integers[c];
      const int32_t low = integers[c] - high * 128;
      to.high[s * kWidth + c] = static_cast<int8_t>(high);
      high_sum += high;
      if (kSplit) to.low[s * kWidth + c] = static_cast<int8_t>(low), low_sum += low;
    }
    to.high_sums[s] = high_sum;
    if (kSplit) to.low_sums[s] = low_sum;
  }
}

CURVQ_SIMD_CLONES void round_16(const float* x, int64_t count, const RoundedSegments& to) {
  round_segments<16, false>(x, count, to);
}
CURVQ_SIMD_CLONES void round_32(const float* x, int64_t count, const RoundedSegments& to) {
  round_segments<32, false>(x, count, to);
}
CURVQ_SIMD_CLONES void split_16(const float* x, int64_t count, const RoundedSegments& to) {
  round_segments<16, true>(x, count, to);
}
CURVQ_SIMD_CLONES void split_32(const float* x, int64_t count, const RoundedSegments& to) {
  round_segments<32, true>(x, count, to);
}

CURVQ_SIMD_CLONES void round_to_bf16(const float* x, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1);  // ties to even
    to[i] = static_cast<uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
  }
}

// Rows of x, one at a time, into the tiles.
class Packer {
 public:
  Packer(const PrepackedWeightParts& weight, LinearInputParts& parts)
      : weight_(weight),
        parts_(parts),
        group_(weight.group_columns()),
        padded_group_(weight.panels.lines_per_group * kLineColumns),
        offset_(!parts.symmetric                       ? 1
                : parts.element == PanelElement::kE2M1 ? 12
                                                       : 8) {}

  void pack(const float* x, int64_t row) const {
    if (parts_.matrix != nullptr) return pack_matrix(x, row);
    if (parts_.integer()) return pack_bytes(x, row);
    const int64_t first = row / parts_.tile_rows * parts_.tile_rows;
    const FloatTile tile = parts_.float_tile(first, 0);
    float* to = parts_.floats.get() + (tile.x - parts_.floats.get()) + (row - first);
    for (int64_t g = 0; g < weight_.grid.groups; ++g) {
      for (int64_t c = 0; c < padded_group_; ++c, to += tile.rows)
        *to = c < group_ ? x[g * group_ + c] : 0.0f;
    }
  }

 private:
  void pack_matrix(const float* x, int64_t row) const {
    std::vector<uint16_t> values(parts_.columns);
    for (int64_t g = 0; g < weight_.grid.groups; ++g)
      round_to_bf16(x + g * group_, group_, values.data() + g * padded_group_);
    constexpr int64_t kColumns = kMatrixLines * kLineColumns;
    for (int64_t c = 0; c < parts_.columns; c += kColumns) {
      std::copy_n(values.data() + c, std::min(kColumns, parts_.columns - c),
                  parts_.matrix_tile(row, c / kLineColumns) + row % kMatrixRows * kColumns);
    }
  }

  void pack_bytes(const float* x, int64_t row) const {
    const bool split = parts_.rounding == InputRounding::kA15;
    std::vector<int8_t> bytes(2 * parts_.columns);
    std::vector<float> scales(parts_.segments);
    std::vector<int32_t> sums(2 * parts_.segments);
    const RoundedSegments all{bytes.data(), bytes.data() + parts_.columns, scales.data(),
                              sums.data(), sums.data() + parts_.segments};
    const auto wide = split ? split_32 : round_32;
    if (padded_group_ == group_ && group_ == 16) {
      (split ? split_16 : round_16)(x, parts_.segments, all);
    } else if (padded_group_ == group_ && group_ % kSegmentColumns == 0) {
      wide(x, parts_.segments, all);
    } else {
      const int64_t per_group = weight_.panels.segments_per_group;
      for (int64_t s = 0; s < parts_.segments; ++s) {
        const int64_t begin = s % per_group * kSegmentColumns;
        float padded[kSegmentColumns] = {};
        std::copy_n(x + s / per_group * group_ + begin, std::min(kSegmentColumns, group_ - begin),
                    padded);
        int8_t high[kSegmentColumns], low[kSegmentColumns];
        wide(padded, 1, {high, low, all.scales + s, all.high_sums + s, all.low_sums + s});
        const int64_t at = s / per_group * padded_group_ + begin;
        const int64_t count = std::min(kSegmentColumns, padded_group_ - begin);
        std::copy_n(high, count, all.high + at);
        if (split) std::copy_n(low, count, all.low + at);
      }
    }
    put(row * parts_.rows_per_row(), all.high, scales, split ? 128.0f : 1.0f, all.high_sums);
    if (split) put(2 * row + 1, all.low, scales, 1, all.low_sums);
  }

  void put(int64_t row, const int8_t* bytes, const std::vector<float>& scales, float factor,
           const int32_t* sums) const {
    const int64_t first = row / parts_.tile_rows * parts_.tile_rows;
    const ByteTile tile = parts_.byte_tile(first, 0, 0);
    int32_t* words = parts_.words.get() + (tile.x - parts_.words.get()) + (row - first);
    for (int64_t w = 0; w < parts_.columns / 4; ++w)
      std::memcpy(words + w * tile.rows, bytes + 4 * w, 4);
    const int64_t at = tile.scales - parts_.scales.get() + (row - first);
    for (int64_t s = 0; s < parts_.segments; ++s) {
      const int64_t to = at + s * tile.rows;
      parts_.scales[to] = factor * scales[s];
      parts_.shifts[to] = -kFloatBaseValue * parts_.scales[to];
      parts_.sums[to] = -offset_ * sums[s] + (parts_.symmetric ? kFloatBase : 0);
    }
  }

  const PrepackedWeightParts& weight_;
  LinearInputParts& parts_;
  int64_t group_, padded_group_;
  int32_t offset_;  // of unsigned weights, see ByteTile
};

bool all_finite(const float* x, int64_t count) {
  return std::all_of(x, x + count, [](float v) { return std::isfinite(v); });
}

// Rounds x [m, k] to the values of an FP4 format.
void round_to_fp4(InputRounding rounding, int64_t m, int64_t k, std::vector<float>& x) {
  const Scheme scheme = rounding == InputRounding::kNvfp4 ? Scheme::nvfp4() : Scheme::mxfp4();
  scheme.num_groups(k);  // throws
  float amax = 0;
  std::vector<char> finite(m);
  for (int64_t i = 0; i < m; ++i) {
    finite[i] = all_finite(x.data() + i * k, k);
    if (finite[i]) amax = std::max(amax, max_abs(x.data() + i * k, k));
  }
  parallel_for(0, m, [&](int64_t i) {
    float* row = x.data() + i * k;
    if (finite[i]) dequantize(quantize_rtn(row, 1, k, scheme, amax), row);
  });
}

void widen(const float* x, int64_t count, float* to) { std::copy_n(x, count, to); }
void widen(const uint16_t* x, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(uint32_t{x[i]} << 16);
}

template <class X>
std::shared_ptr<const LinearInputParts> make_input(const PrepackedWeight& weight, const X* x,
                                                   int64_t m, int64_t ldx, InputRounding rounding) {
  const PrepackedWeightParts& w = weight.parts();
  const int64_t k = weight.cols();
  if (m < 0) throw UsageError(format("linear: m is %lld; it cannot be negative", (long long)m));
  if (ldx < k) {
    throw UsageError(
        format("linear: row stride ldx %lld; at least k = %lld", (long long)ldx, (long long)k));
  }
  if (x == nullptr && m > 0) throw UsageError("linear: x is a null pointer");
  auto parts = std::make_shared<LinearInputParts>();
  const GemmPath& path = select_gemm_path();
  parts->path = path.panels;
  if (rounding == InputRounding::kBF16 && m >= kMatrixLeastRows) parts->matrix = path.matrix;
  parts->rounding = rounding;
  parts->element = w.panels.element;
  parts->symmetric = w.panels.zero_points == nullptr;
  parts->cols = k, parts->group_columns = w.group_columns();
  parts->rows = m;
  parts->tile_rows = parts->integer() ? parts->path->byte_rows : parts->path->float_rows;
  parts->columns = w.lines() * kLineColumns, parts->segments = w.segments();
  if (parts->integer()) {
    if (!has_input_rounding(weight.scheme(), rounding)) {
      throw UnsupportedError("linear: weights in " + weight.scheme().describe() +
                             " have no product with integer inputs; leave inputs in float32");
    }
    const int64_t rows = parts->kernel_rows(), scales = rows * parts->segments;
    parts->words = std::make_unique_for_overwrite<int32_t[]>(rows * parts->columns / 4);
    parts->scales = std::make_unique_for_overwrite<float[]>(scales);
    parts->shifts = std::make_unique_for_overwrite<float[]>(scales);
    parts->sums = std::make_unique_for_overwrite<int32_t[]>(scales);
  } else if (parts->matrix != nullptr) {
    parts->tiles = PanelBytes(parts->row_tiles() * parts->column_tiles() * kMatrixTileValues *
                              int64_t{sizeof(uint16_t)});
  } else {
    parts->floats = std::make_unique_for_overwrite<float[]>(m * parts->columns);
  }
  const Packer packer(w, *parts);
  if (rounding == InputRounding::kNvfp4 || rounding == InputRounding::kMxfp4) {
    std::vector<float> rounded(m * k);
    for (int64_t i = 0; i < m; ++i) widen(x + i * ldx, k, rounded.data() + i * k);
    round_to_fp4(rounding, m, k, rounded);
    for (int64_t i = 0; i < m; ++i) packer.pack(rounded.data() + i * k, i);
    return parts;
  }
  const auto pack = [&](int64_t i) {
    const bool round = rounding == InputRounding::kBF16 && parts->matrix == nullptr;
    if (sizeof(X) == sizeof(float) && !round)
      return packer.pack(reinterpret_cast<const float*>(x + i * ldx), i);
    std::vector<float> row(k);
    widen(x + i * ldx, k, row.data());
    if (round) {
      std::vector<uint16_t> bits(k);
      round_to_bf16(row.data(), k, bits.data());
      widen(bits.data(), k, row.data());
    }
    packer.pack(row.data(), i);
  };
  constexpr int64_t kLeastParallel = 65536;  // waking threads costs more than so many values
  if (m * k < kLeastParallel) {
    for (int64_t i = 0; i < m; ++i) pack(i);
  } else {
    parallel_for(0, m, pack);
  }
  return parts;
}

}  // namespace

bool LinearInputParts::fits(const PrepackedWeight& weight) const {
  const PrepackedWeightParts& w = weight.parts();
  return cols == weight.cols() && group_columns == w.group_columns() &&
         element == w.panels.element && symmetric == (w.panels.zero_points == nullptr);
}

}  // namespace internal

LinearInput::LinearInput(const PrepackedWeight& weight, const float* x, int64_t m, int64_t ldx,
                         InputRounding rounding)
    : parts_(internal::make_input(weight, x, m, ldx, rounding)) {}

LinearInput::LinearInput(const PrepackedWeight& weight, const uint16_t* x, int64_t m, int64_t ldx,
                         InputRounding rounding)
    : parts_(internal::make_input(weight, x, m, ldx, rounding)) {}

int64_t LinearInput::rows() const { return parts_->rows; }

}  // namespace curvq
