#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "curvq/kernels/gemm.h"
#include "formats/codec.h"
#include "formats/simd_clones.h"
#include "kernels/gemm_path.h"
#include "kernels/int16_tile.h"

namespace curvq {
namespace {

using internal::Int16Panel;
using internal::kInt16Columns;

// Most columns of a block: 256 products of 16 and 9 bits fit in 32.
constexpr int64_t kMostWidth = 256;
// Columns of x that share a scale and stay in the first-level cache with their weights.
constexpr int64_t kPanelWidth = 256;
// Integers of x that stay in the second-level cache while kColumnBlock weight rows reuse them.
constexpr int64_t kCachedIntegers = 128 << 10;
constexpr int64_t kMostRows = 192, kColumnBlock = 64;

// The columns of a weight, cut into blocks of one scale: a group, or equal pieces of a long one.
// In memory each block takes `width` columns, a multiple of 8; spare ones are zero.
struct Blocks {
  int64_t cols, group, pieces, piece, width, count, per_panel;

  Blocks(const Scheme& scheme, int64_t k) : cols(k) {
    group = scheme.group_size == 0 ? std::max<int64_t>(k, 1) : scheme.group_size;
    pieces = (group + kMostWidth - 1) / kMostWidth;
    piece = (group + pieces - 1) / pieces;
    width = (piece + 7) / 8 * 8;
    count = (k + group - 1) / group * pieces;
    per_panel = std::max<int64_t>(1, kPanelWidth / width);
  }
  int64_t begin(int64_t b) const {
    return std::min(cols, b / pieces * group + std::min(group, b % pieces * piece));
  }
  int64_t end(int64_t b) const { return begin(b + 1); }
  int64_t num_panels() const { return (count + per_panel - 1) / per_panel; }
};

CURVQ_SIMD_CLONES void round_to_int16(const float* x, int64_t count, float inverse_scale,
                                      int16_t* out) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23 rounds to an integer, ties to even
  for (int64_t i = 0; i < count; ++i) {
    const float rounded = x[i] * inverse_scale + kMagic;
    out[i] = static_cast<int16_t>(std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kMagic));
  }
}

// x as integers, one scale a row and panel: scale = amax / 32767.
struct Int16Activations {
  int64_t stride;                     // of a row: blocks.count * blocks.width
  std::unique_ptr<int16_t[]> values;  // [m, stride]
  std::vector<float> scales;          // [m, panels]

  Int16Activations(const float* x, int64_t m, int64_t ldx, const Blocks& blocks)
      : stride(blocks.count * blocks.width),
        values(std::make_unique_for_overwrite<int16_t[]>(m * stride)),
        scales(m * blocks.num_panels()) {
    parallel_for(0, m, [&](int64_t i) {
      for (int64_t p = 0; p < blocks.num_panels(); ++p)
        scales[i * blocks.num_panels() + p] =
            round_panel(x + i * ldx, p, blocks, values.get() + i * stride);
    });
  }

  static float round_panel(const float* x, int64_t panel, const Blocks& blocks, int16_t* out) {
    const int64_t first = panel * blocks.per_panel;
    const int64_t last = std::min(blocks.count, first + blocks.per_panel);
    const int64_t begin = blocks.begin(first);
    const float amax = max_abs(x + begin, blocks.end(last - 1) - begin);
    const bool finite = std::isfinite(amax);
    if (!finite || amax < 32767 * std::numeric_limits<float>::min()) {
      std::fill(out + first * blocks.width, out + last * blocks.width, int16_t{0});
      return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    }
    for (int64_t b = first; b < last; ++b) {
      const int64_t length = blocks.end(b) - blocks.begin(b);
      int16_t* block = out + b * blocks.width;
      round_to_int16(x + blocks.begin(b), length, 32767 / amax, block);
      std::fill(block + length, block + blocks.width, int16_t{0});
    }
    return amax / 32767;
  }
};

// Two neighbouring codes of 4 bits as two 16-bit integers; E2M1 doubled.
template <class Codec>
constexpr std::array<std::array<int16_t, 2>, 256> pair_table(int factor) {
  std::array<std::array<int16_t, 2>, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = {static_cast<int16_t>(static_cast<float>(factor) * Codec{}.value(byte & 15)),
                   static_cast<int16_t>(static_cast<float>(factor) * Codec{}.value(byte >> 4))};
  }
  return table;
}

constexpr auto kE2M1Pairs = pair_table<internal::E2M1Codec>(2);
constexpr auto kInt4Pairs = pair_table<internal::IntCodec<4>>(1);

// Weight rows [first, first + kInt16Columns) as int16_tile.h wants them; zero behind the last row.
void unpack(const QuantizedMatrix& weight, const Blocks& blocks, int64_t first, int16_t* out,
            float* scales) {
  const Scheme& scheme = weight.scheme();
  const auto& pairs = scheme.element == ElementType::kE2M1 ? kE2M1Pairs : kInt4Pairs;
  const float factor = scheme.element == ElementType::kE2M1 ? 0.5f : 1.0f;
  const int64_t rows = std::min(kInt16Columns, weight.rows() - first);
  if (rows < kInt16Columns) {
    std::fill_n(out, blocks.count * blocks.width * kInt16Columns, int16_t{0});
    std::fill_n(scales, blocks.count * kInt16Columns, 0.0f);
  }
  for (int64_t j = 0; j < rows; ++j) {
    const uint8_t* codes = weight.codes.data() + (first + j) * weight.row_bytes;
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.begin(b), length = blocks.end(b) - begin;
      const int zero = weight.grid.zero_point(first + j, b / blocks.pieces);
      scales[b * kInt16Columns + j] = factor * weight.grid.scale(first + j, b / blocks.pieces);
      int16_t* to = out + b * blocks.width * kInt16Columns + 2 * j;
      if (scheme.bits == 4 && begin % 2 == 0 && length == blocks.width && zero == 0) {
        for (int64_t p = 0; p < length / 2; ++p)
          std::memcpy(to + p * 2 * kInt16Columns, pairs[codes[begin / 2 + p]].data(), 4);
        continue;
      }
      for (int64_t c = 0; c < blocks.width; ++c) {
        int value = 0;
        if (c < length) {
          const uint8_t code = weight.code(first + j, begin + c);
          value = scheme.bits == 4 ? pairs[code][0] - zero : code - 128 - zero;
        }
        to[c / 2 * 2 * kInt16Columns + c % 2] = static_cast<int16_t>(value);
      }
    }
  }
}

// Columns [first, first + kColumnBlock) of out.
class ColumnBlock {
 public:
  ColumnBlock(const QuantizedMatrix& weight, const Blocks& blocks, int64_t first)
      : blocks_(blocks), first_(first), n_(std::min(kColumnBlock, weight.rows() - first)) {
    const int64_t tiles = (n_ + kInt16Columns - 1) / kInt16Columns;
    values_ = std::make_unique_for_overwrite<int16_t[]>(tiles * tile_values());
    scales_.resize(tiles * tile_scales());
    for (int64_t t = 0; t < tiles; ++t) {
      unpack(weight, blocks, first + t * kInt16Columns, values_.get() + t * tile_values(),
             scales_.data() + t * tile_scales());
    }
  }

  void multiply(internal::Int16Tile* tile, const Int16Activations& x, int64_t m, float* out,
                int64_t ldout) const {
    const int64_t whole = n_ / kInt16Columns, tiles = whole + (n_ % kInt16Columns != 0);
    std::vector<float> edge(whole == tiles ? 0 : m * kInt16Columns);
    const int64_t row_block = std::clamp<int64_t>(kCachedIntegers / x.stride, 24, kMostRows);
    for (int64_t row = 0; row < m; row += row_block) {
      const int64_t rows = std::min(row_block, m - row);
      for (int64_t t = 0; t < tiles; ++t) {
        float* to = t < whole ? out + row * ldout + first_ + t * kInt16Columns
                              : edge.data() + row * kInt16Columns;
        for (int64_t panel = 0; panel < blocks_.num_panels(); ++panel)
          tile(part(x, panel, row, rows, t, to, t < whole ? ldout : kInt16Columns));
      }
    }
    if (edge.empty()) return;
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(edge.data() + i * kInt16Columns, n_ % kInt16Columns,
                  out + i * ldout + first_ + whole * kInt16Columns);
    }
  }

 private:
  int64_t tile_values() const { return blocks_.count * blocks_.width * kInt16Columns; }
  int64_t tile_scales() const { return blocks_.count * kInt16Columns; }

  Int16Panel part(const Int16Activations& x, int64_t panel, int64_t row, int64_t rows, int64_t t,
                  float* out, int64_t ldout) const {
    const int64_t first = panel * blocks_.per_panel;
    Int16Panel p;
    p.x = x.values.get() + row * x.stride + first * blocks_.width;
    p.ldx = x.stride;
    p.m = rows;
    p.w = values_.get() + t * tile_values() + first * blocks_.width * kInt16Columns;
    p.scales = scales_.data() + t * tile_scales() + first * kInt16Columns;
    p.blocks = std::min(blocks_.per_panel, blocks_.count - first);
    p.pairs = blocks_.width / 2;
    p.x_scales = x.scales.data() + row * blocks_.num_panels() + panel;
    p.x_scale_stride = blocks_.num_panels();
    p.out = out;
    p.ldout = ldout;
    p.accumulate = panel > 0;
    return p;
  }

  const Blocks& blocks_;
  int64_t first_, n_;
  std::unique_ptr<int16_t[]> values_;
  std::vector<float> scales_;
};

}  // namespace

bool has_int16_path(const Scheme& scheme) { return scheme.element != ElementType::kE4M3; }

void packed_gemm_int16(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                       float* out, int64_t ldout) {
  internal::check_gemm(weight, x, m, ldx, out, ldout);
  if (!has_int16_path(weight.scheme())) {
    throw UnsupportedError("packed_gemm_int16: " + weight.scheme().describe() +
                           " weights are no small integers; use packed_gemm");
  }
  const int64_t n = weight.rows();
  if (m == 0 || n == 0) return;
  if (weight.cols() == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(out + i * ldout, n, 0.0f);
    return;
  }
  internal::Int16Tile* tile = internal::select_gemm_path().int16_tile;
  const Blocks blocks(weight.scheme(), weight.cols());
  const Int16Activations activations(x, m, ldx, blocks);
  parallel_for(0, (n + kColumnBlock - 1) / kColumnBlock, [&](int64_t block) {
    ColumnBlock(weight, blocks, block * kColumnBlock).multiply(tile, activations, m, out, ldout);
  });
}

}  // namespace curvq
