#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/kernels/gram.h"
#include "formats/simd_clones.h"
#include "kernels/gemm_path.h"

namespace curvq {
namespace {

using internal::Int16Panel;
constexpr int64_t kStrip = internal::kIntegerColumns;

constexpr int64_t kPanelRows = 256;  // share a scale
constexpr int64_t kBlockRows = 64;   // 64 products of 12 + 12 bits fit in 31
constexpr float kMost = 4095;

// Columns of x whose integers stay in the second-level cache, as rows of the product, while those
// of some strips meet them.
constexpr int64_t kColumnBlock = 192, kStripsTogether = 4;

// The largest magnitude of each of 16 columns; as integers, NaN is larger than infinity.
CURVQ_SIMD_CLONES void strip_amax(const float* x, int64_t rows, int64_t ldx, float* amax) {
  uint32_t largest[kStrip] = {};
  for (int64_t t = 0; t < rows; ++t, x += ldx) {
    for (int64_t j = 0; j < kStrip; ++j)
      largest[j] = std::max(largest[j], std::bit_cast<uint32_t>(x[j]) & 0x7fffffffu);
  }
  for (int64_t j = 0; j < kStrip; ++j) amax[j] = std::bit_cast<float>(largest[j]);
}

// out [rows / 2, kStrip, 2]
CURVQ_SIMD_CLONES void round_strip(const float* x, int64_t rows, int64_t ldx,
                                   const float* inverse_scale, int16_t* out) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23 rounds to an integer, ties to even
  constexpr int32_t kMagicBits = std::bit_cast<int32_t>(kMagic);
  for (int64_t t = 0; t < rows; t += 2, x += 2 * ldx, out += 2 * kStrip) {
    for (int64_t j = 0; j < kStrip; ++j) {
      const int32_t first = std::bit_cast<int32_t>(x[j] * inverse_scale[j] + kMagic) - kMagicBits;
      const int32_t second =
          std::bit_cast<int32_t>(x[ldx + j] * inverse_scale[j] + kMagic) - kMagicBits;
      out[2 * j] = static_cast<int16_t>(first);
      out[2 * j + 1] = static_cast<int16_t>(second);
    }
  }
}

// 256 rows of x as integers, in both layouts of integer_tile.h. Missing rows and columns are zero.
class Panel {
 public:
  explicit Panel(int64_t k)
      : k_(k),
        strips_((k + kStrip - 1) / kStrip),
        by_row_(std::make_unique_for_overwrite<int16_t[]>(strips_ * kStrip * kPanelRows)),
        by_pair_(std::make_unique_for_overwrite<int16_t[]>(strips_ * kStrip * kPanelRows)),
        scales_(strips_ * kStrip),
        block_scales_(strips_ * kBlocks * kStrip) {}

  void fill(const float* x, int64_t rows, int64_t ldx) {
    parallel_for(0, strips_, [&](int64_t s) {
      const int64_t columns = std::min(kStrip, k_ - s * kStrip);
      if (rows == kPanelRows && columns == kStrip) return fill_strip(s, x + s * kStrip, ldx);
      std::vector<float> padded(kPanelRows * kStrip, 0.0f);
      for (int64_t t = 0; t < rows; ++t)
        std::copy_n(x + t * ldx + s * kStrip, columns, padded.data() + t * kStrip);
      fill_strip(s, padded.data(), kStrip);
    });
  }

  // out [i, j] (+)= sum_t x[t, i] x[t, j] for rows [row, row + count) and the columns of a strip.
  void multiply(internal::Int16Tile* tile, int64_t row, int64_t count, int64_t strip, float* out,
                int64_t ldout) const {
    Int16Panel p;
    p.x = by_row_.get() + row * kPanelRows;
    p.ldx = kPanelRows;
    p.m = count;
    p.w = by_pair_.get() + strip * kStrip * kPanelRows;
    p.scales = block_scales_.data() + strip * kBlocks * kStrip;
    p.blocks = kBlocks;
    p.lanes = kBlockRows / 2;
    p.x_scales = scales_.data() + row;
    p.x_scale_stride = 1;
    p.out = out;
    p.ldout = ldout;
    p.accumulate = true;
    tile(p);
  }

 private:
  static constexpr int64_t kBlocks = kPanelRows / kBlockRows;

  void fill_strip(int64_t s, const float* x, int64_t ldx) {
    float amax[kStrip], inverse[kStrip];
    strip_amax(x, kPanelRows, ldx, amax);
    float* scales = scales_.data() + s * kStrip;
    for (int64_t j = 0; j < kStrip; ++j) {
      const bool finite = std::isfinite(amax[j]);
      const bool tiny = amax[j] < kMost * std::numeric_limits<float>::min();
      scales[j] = finite ? (tiny ? 0.0f : amax[j] / kMost) : std::nanf("");
      inverse[j] = finite && !tiny ? kMost / amax[j] : 0.0f;
      for (int64_t b = 0; b < kBlocks; ++b)
        block_scales_[(s * kBlocks + b) * kStrip + j] = scales[j];
    }
    std::vector<float> finite_part;
    if (std::any_of(scales, scales + kStrip, [](float scale) { return std::isnan(scale); })) {
      finite_part.resize(kPanelRows * kStrip);
      for (int64_t i = 0; i < kPanelRows * kStrip; ++i) {
        const float value = x[i / kStrip * ldx + i % kStrip];
        finite_part[i] = std::isfinite(value) ? value : 0.0f;
      }
      x = finite_part.data();
      ldx = kStrip;
    }
    int16_t* pairs = by_pair_.get() + s * kStrip * kPanelRows;
    round_strip(x, kPanelRows, ldx, inverse, pairs);
    int16_t* rows = by_row_.get() + s * kStrip * kPanelRows;
    for (int64_t t = 0; t < kPanelRows; t += 2, pairs += 2 * kStrip) {
      for (int64_t j = 0; j < kStrip; ++j) {
        rows[j * kPanelRows + t] = pairs[2 * j];
        rows[j * kPanelRows + t + 1] = pairs[2 * j + 1];
      }
    }
  }

  int64_t k_, strips_;
  std::unique_ptr<int16_t[]> by_row_;   // [columns, kPanelRows]
  std::unique_ptr<int16_t[]> by_pair_;  // [strips, kPanelRows / 2, kStrip, 2]
  std::vector<float> scales_;           // [columns]
  std::vector<float> block_scales_;     // [strips, kBlocks, kStrip]
};

}  // namespace

void accumulate_gram_int16(const float* x, int64_t n, int64_t k, int64_t ldx, float alpha,
                           float* gram) {
  if (n < 0 || k < 0 || ldx < k) {
    throw UsageError(format("accumulate_gram_int16: n %ld, k %ld, row stride ldx %ld (at least k)",
                            long{n}, long{k}, long{ldx}));
  }
  if (n == 0 || k == 0) return;
  if (x == nullptr || gram == nullptr) {
    throw UsageError(std::string("accumulate_gram_int16: ") + (x == nullptr ? "x" : "gram") +
                     " is a null pointer");
  }
  internal::Int16Tile* tile = internal::select_gemm_path().int16_tile;
  const int64_t strips = (k + kStrip - 1) / kStrip;
  // A panel's strip of the lower triangle is summed in `sums` before alpha scales it.
  std::vector<Panel> panels;
  for (int64_t t = 0; t < n; t += kPanelRows) {
    panels.emplace_back(k).fill(x + t * ldx, std::min(kPanelRows, n - t), ldx);
  }
  parallel_for(0, (strips + kStripsTogether - 1) / kStripsTogether, [&](int64_t group) {
    const int64_t first_strip = group * kStripsTogether, first = first_strip * kStrip;
    const int64_t count_strips = std::min(kStripsTogether, strips - first_strip);
    const int64_t rows = k - first;
    std::vector<float> sums(count_strips * rows * kStrip, 0.0f);  // [strip, row, column]
    for (int64_t row = 0; row < rows; row += kColumnBlock) {
      const int64_t count = std::min(kColumnBlock, rows - row);
      for (const Panel& panel : panels) {
        for (int64_t s = 0; s < count_strips; ++s) {
          const int64_t begin = std::max(row, s * kStrip);  // on the diagonal
          if (begin >= row + count) continue;
          panel.multiply(tile, first + begin, row + count - begin, first_strip + s,
                         sums.data() + (s * rows + begin) * kStrip, kStrip);
        }
      }
    }
    for (int64_t s = 0; s < count_strips; ++s) {
      const int64_t column = first + s * kStrip;
      for (int64_t i = column; i < k; ++i) {
        const int64_t columns = std::min(kStrip, i - column + 1);
        for (int64_t j = 0; j < columns; ++j)
          gram[i * k + column + j] += alpha * sums[(s * rows + i - first) * kStrip + j];
      }
    }
  });
}

}  // namespace curvq
