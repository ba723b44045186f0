#include <bit>
#include <cmath>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/kernels/gemm.h"
#include "formats/simd_clones.h"
#include "kernels/integer_gemm.h"

namespace curvq {
namespace {

using internal::Blocks;
using internal::kIntegerColumns;

constexpr int kZero = 128;

// Blocks of kWidth columns one after the other; scales [count] = amax / 127.
template <int kWidth>
[[gnu::always_inline]] inline void round_blocks(const float* x, int64_t count, uint8_t* out,
                                                float* scales) {
  constexpr float kMagic = 12582912.0f + kZero;  // 1.5 * 2^23 rounds to an integer, ties to even
  for (int64_t b = 0; b < count; ++b, x += kWidth, out += kWidth) {
    uint32_t largest = 0;  // as integers, NaN is larger than infinity
    for (int c = 0; c < kWidth; ++c)
      largest = std::max(largest, std::bit_cast<uint32_t>(x[c]) & 0x7fffffffu);
    const float amax = std::bit_cast<float>(largest);
    const bool finite = largest < 0x7f800000u;
    const bool usable = finite && amax >= 127 * std::numeric_limits<float>::min();
    const float inverse = usable ? 127 / amax : 0.0f;
    scales[b] = usable ? amax / 127 : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    if (!finite) {
      std::fill_n(out, kWidth, static_cast<uint8_t>(kZero));
      continue;
    }
    for (int c = 0; c < kWidth; ++c)
      out[c] = static_cast<uint8_t>(std::bit_cast<int32_t>(x[c] * inverse + kMagic));
  }
}

CURVQ_SIMD_CLONES void round_blocks_of_16(const float* x, int64_t count, uint8_t* out,
                                          float* scales) {
  round_blocks<16>(x, count, out, scales);
}

CURVQ_SIMD_CLONES void round_blocks_of_32(const float* x, int64_t count, uint8_t* out,
                                          float* scales) {
  round_blocks<32>(x, count, out, scales);
}

// One scale a row and block; x + 128 is stored.
struct Int8Kind {
  using X = uint8_t;
  using W = int8_t;
  using Panel = internal::Int8Panel;
  using Tile = internal::Int8Tile;
  static constexpr int64_t kTogether = 4, kMostWidth = 32, kWidthMultiple = 16, kPanelWidth = 1024;
  static constexpr bool kOffsets = true;

  static int64_t scales_per_row(const Blocks& blocks) { return blocks.count; }
  static int64_t first_scale(const Blocks& blocks, int64_t panel) {
    return panel * blocks.per_panel;
  }

  static void round(const float* x, const Blocks& blocks, uint8_t* out, float* scales) {
    const auto round = blocks.width == 16 ? round_blocks_of_16 : round_blocks_of_32;
    if (blocks.count * blocks.width == blocks.cols) return round(x, blocks.count, out, scales);
    float padded[kMostWidth];
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.begin(b), length = blocks.end(b) - begin;
      std::fill(std::copy_n(x + begin, length, padded), padded + blocks.width, 0.0f);
      round(padded, 1, out + b * blocks.width, scales + b);
    }
  }

  static std::vector<int16_t> offsets(const int8_t* w, const Blocks& blocks) {
    std::vector<int16_t> offsets(blocks.count * kIntegerColumns * 2, 0);
    const int64_t lanes = blocks.width / kTogether;
    for (int64_t b = 0; b < blocks.count; ++b) {
      int16_t* sums = offsets.data() + b * kIntegerColumns * 2;
      for (int64_t p = 0; p < lanes; ++p, w += kIntegerColumns * kTogether) {
        for (int64_t i = 0; i < kIntegerColumns * 2; ++i)
          sums[i] = static_cast<int16_t>(sums[i] - kZero * (w[2 * i] + w[2 * i + 1]));
      }
    }
    return offsets;
  }
};

}  // namespace

bool has_int8_path(const Scheme& scheme) { return scheme.bits == 4; }

void packed_gemm_int8(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                      float* out, int64_t ldout) {
  internal::check_gemm(weight, x, m, ldx, out, ldout);
  if (!has_int8_path(weight.scheme())) {
    throw UnsupportedError("packed_gemm_int8: " + weight.scheme().describe() +
                           " weights do not have 4 bits; use packed_gemm_int16 or packed_gemm");
  }
  internal::integer_gemm<Int8Kind>(weight, x, m, ldx, internal::select_gemm_path().int8_tile, out,
                                   ldout);
}

Activations usable_activations(Activations wanted, const Scheme& scheme) {
  if (wanted == Activations::kInt8 && has_int8_path(scheme)) return wanted;
  return wanted != Activations::kFloat32 && has_int16_path(scheme) ? Activations::kInt16
                                                                   : Activations::kFloat32;
}

void packed_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx, float* out,
                 int64_t ldout, Activations wanted) {
  switch (usable_activations(wanted, weight.scheme())) {
    case Activations::kFloat32:
      return packed_gemm(weight, x, m, ldx, out, ldout);
    case Activations::kInt16:
      return packed_gemm_int16(weight, x, m, ldx, out, ldout);
    case Activations::kInt8:
      return packed_gemm_int8(weight, x, m, ldx, out, ldout);
  }
}

}  // namespace curvq
