// What packed_gemm_int16 and packed_gemm_int8 share: packing of both factors into integers, and
// cache blocking. A Kind says which integers:
//   X, W, Panel, Tile           integers of x and of the weight, see integer_tile.h
//   kTogether                   columns in a lane
//   kMostWidth, kWidthMultiple  columns of a block in memory
//   kPanelWidth                 columns whose weights stay in the first-level cache
//   kOffsets                    whether the panel wants the weights' sums
//   scales_per_row(blocks), first_scale(blocks, panel)      layout of the scales of x
//   round(x, blocks, out, scales)                           one row of x
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "curvq/core/parallel.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/codec.h"
#include "kernels/gemm_path.h"
#include "kernels/integer_tile.h"

namespace curvq::internal {

// The columns of a weight, cut into blocks of one scale: a group, or equal pieces of a long one.
// In memory each block takes `width` columns; spare ones are zero.
struct Blocks {
  int64_t cols, group, pieces, piece, width, count, per_panel;

  Blocks(const Scheme& scheme, int64_t k, int64_t most_width, int64_t multiple, int64_t panel_width)
      : cols(k) {
    group = scheme.group_size == 0 ? std::max<int64_t>(k, 1) : scheme.group_size;
    pieces = (group + most_width - 1) / most_width;
    piece = (group + pieces - 1) / pieces;
    width = (piece + multiple - 1) / multiple * multiple;
    count = (k + group - 1) / group * pieces;
    per_panel = std::max<int64_t>(1, panel_width / width);
  }
  int64_t begin(int64_t b) const {
    return std::min(cols, b / pieces * group + std::min(group, b % pieces * piece));
  }
  int64_t end(int64_t b) const { return begin(b + 1); }
  int64_t num_panels() const { return (count + per_panel - 1) / per_panel; }
};

// Two neighbouring codes of 4 bits as integers; E2M1 doubled.
template <class W, class Codec>
constexpr std::array<std::array<W, 2>, 256> pair_table(int factor) {
  std::array<std::array<W, 2>, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = {static_cast<W>(static_cast<float>(factor) * Codec{}.value(byte & 15)),
                   static_cast<W>(static_cast<float>(factor) * Codec{}.value(byte >> 4))};
  }
  return table;
}

template <class Kind>
class IntegerGemm {
  using X = typename Kind::X;
  using W = typename Kind::W;

 public:
  // x [m, k] with row stride ldx
  IntegerGemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx)
      : weight_(weight),
        m_(m),
        blocks_(weight.scheme(), weight.cols(), Kind::kMostWidth, Kind::kWidthMultiple,
                Kind::kPanelWidth),
        stride_(blocks_.count * blocks_.width),
        scale_stride_(Kind::scales_per_row(blocks_)),
        values_(std::make_unique_for_overwrite<X[]>(m * stride_)),
        scales_(std::make_unique_for_overwrite<float[]>(m * scale_stride_)) {
    parallel_for(0, m, [&](int64_t i) {
      Kind::round(x + i * ldx, blocks_, values_.get() + i * stride_,
                  scales_.get() + i * scale_stride_);
    });
  }

  void multiply(typename Kind::Tile* tile, float* out, int64_t ldout) const {
    parallel_for(0, (weight_.rows() + kColumnBlock - 1) / kColumnBlock,
                 [&](int64_t block) { multiply_columns(tile, block * kColumnBlock, out, ldout); });
  }

 private:
  static constexpr auto kE2M1Pairs = pair_table<W, E2M1Codec>(2);
  static constexpr auto kInt4Pairs = pair_table<W, IntCodec<4>>(1);
  // Bytes of x that stay in the second-level cache while kColumnBlock weight rows reuse them.
  static constexpr int64_t kCachedBytes = 256 << 10;
  static constexpr int64_t kMostRows = 192, kColumnBlock = 64;

  // kIntegerColumns weight rows as integer_tile.h wants them.
  struct Strip {
    std::unique_ptr<W[]> values;
    std::vector<float> scales;
    std::vector<int16_t> offsets;
  };

  int64_t place(int64_t c) const {  // of column c of the first row of a strip
    return c / Kind::kTogether * Kind::kTogether * kIntegerColumns + c % Kind::kTogether;
  }

  void multiply_columns(typename Kind::Tile* tile, int64_t first, float* out, int64_t ldout) const {
    const int64_t n = std::min(kColumnBlock, weight_.rows() - first);
    const int64_t whole = n / kIntegerColumns, strips = whole + (n % kIntegerColumns != 0);
    std::vector<Strip> weights(strips);
    for (int64_t s = 0; s < strips; ++s) weights[s] = unpack(first + s * kIntegerColumns);
    std::vector<float> edge(whole == strips ? 0 : m_ * kIntegerColumns);
    const int64_t row_block = std::clamp<int64_t>(
        kCachedBytes / (stride_ * static_cast<int64_t>(sizeof(X))), 24, kMostRows);
    for (int64_t row = 0; row < m_; row += row_block) {
      const int64_t rows = std::min(row_block, m_ - row);
      for (int64_t s = 0; s < strips; ++s) {
        float* to = s < whole ? out + row * ldout + first + s * kIntegerColumns
                              : edge.data() + row * kIntegerColumns;
        for (int64_t panel = 0; panel < blocks_.num_panels(); ++panel)
          tile(part(weights[s], panel, row, rows, to, s < whole ? ldout : kIntegerColumns));
      }
    }
    if (edge.empty()) return;
    for (int64_t i = 0; i < m_; ++i) {
      std::copy_n(edge.data() + i * kIntegerColumns, n % kIntegerColumns,
                  out + i * ldout + first + whole * kIntegerColumns);
    }
  }

  typename Kind::Panel part(const Strip& strip, int64_t panel, int64_t row, int64_t rows,
                            float* out, int64_t ldout) const {
    const int64_t first = panel * blocks_.per_panel;
    typename Kind::Panel p;
    p.x = values_.get() + row * stride_ + first * blocks_.width;
    p.ldx = stride_;
    p.m = rows;
    p.w = strip.values.get() + first * blocks_.width * kIntegerColumns;
    p.scales = strip.scales.data() + first * kIntegerColumns;
    p.blocks = std::min(blocks_.per_panel, blocks_.count - first);
    p.lanes = blocks_.width / Kind::kTogether;
    p.x_scales = scales_.get() + row * scale_stride_ + Kind::first_scale(blocks_, panel);
    p.x_scale_stride = scale_stride_;
    p.out = out;
    p.ldout = ldout;
    p.accumulate = panel > 0;
    if constexpr (Kind::kOffsets) p.offsets = strip.offsets.data() + 2 * first * kIntegerColumns;
    return p;
  }

  // Weight rows [first, first + kIntegerColumns); zero behind the last row.
  Strip unpack(int64_t first) const {
    const Scheme& scheme = weight_.scheme();
    const auto& pairs = scheme.element == ElementType::kE2M1 ? kE2M1Pairs : kInt4Pairs;
    const float factor = scheme.element == ElementType::kE2M1 ? 0.5f : 1.0f;
    const int64_t rows = std::min(kIntegerColumns, weight_.rows() - first);
    Strip strip;
    strip.values = std::make_unique_for_overwrite<W[]>(stride_ * kIntegerColumns);
    strip.scales.resize(blocks_.count * kIntegerColumns);
    if (rows < kIntegerColumns) std::fill_n(strip.values.get(), stride_ * kIntegerColumns, W{0});
    for (int64_t j = 0; j < rows; ++j) {
      const uint8_t* codes = weight_.codes.data() + (first + j) * weight_.row_bytes;
      for (int64_t b = 0; b < blocks_.count; ++b) {
        const int64_t begin = blocks_.begin(b), length = blocks_.end(b) - begin;
        const int zero = weight_.grid.zero_point(first + j, b / blocks_.pieces);
        strip.scales[b * kIntegerColumns + j] =
            factor * weight_.grid.scale(first + j, b / blocks_.pieces);
        W* to = strip.values.get() + b * blocks_.width * kIntegerColumns + Kind::kTogether * j;
        if (scheme.bits == 4 && begin % 2 == 0 && length == blocks_.width && zero == 0) {
          for (int64_t c = 0; c < length; c += 2)
            std::memcpy(to + place(c), pairs[codes[(begin + c) / 2]].data(), 2 * sizeof(W));
          continue;
        }
        for (int64_t c = 0; c < blocks_.width; ++c) {
          int value = 0;
          if (c < length) {
            const uint8_t code = weight_.code(first + j, begin + c);
            value = scheme.bits == 4 ? pairs[code][0] - zero : code - 128 - zero;
          }
          to[place(c)] = static_cast<W>(value);
        }
      }
    }
    if constexpr (Kind::kOffsets) strip.offsets = Kind::offsets(strip.values.get(), blocks_);
    return strip;
  }

  const QuantizedMatrix& weight_;
  int64_t m_;
  Blocks blocks_;
  int64_t stride_, scale_stride_;  // of a row of x
  std::unique_ptr<X[]> values_;
  std::unique_ptr<float[]> scales_;
};

// out = x W^T through integers; x, out, weight as in gemm.h.
template <class Kind>
void integer_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                  typename Kind::Tile* tile, float* out, int64_t ldout) {
  const int64_t n = weight.rows();
  if (m == 0 || n == 0) return;
  if (weight.cols() == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(out + i * ldout, n, 0.0f);
    return;
  }
  IntegerGemm<Kind>(weight, x, m, ldx).multiply(tile, out, ldout);
}

}  // namespace curvq::internal
