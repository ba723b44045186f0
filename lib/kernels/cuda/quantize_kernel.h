// Rounds 16-bit activations to 4 bits with a scale a block, in the layout of w4a4_layout.h and with
// the arithmetic of round_inputs(). A lane rounds 8 columns; a warp takes 8 rows of four groups,
// those whose scales are 32 consecutive bytes: rows r + 32 i and r + 1 + 32 i.
#pragma once

#include "kernels/cuda/simt/simt.h"
#include "kernels/cuda/w4a4_layout.h"

namespace curvq::cuda {

constexpr int kQuantizeThreads = 128, kQuantizeRows = 8;  // rows: of a warp
constexpr int kQuantizeTilesY = 4;                        // blocks that share 128 rows

// Of a group: its scale's code, and the values over it.
template <BlockScale kScale>
struct GroupScale {
  uint32_t code;
  float factor;  // divides for E4M3, multiplies for E8M0

  // `largest`: the bits of the largest magnitude, which for NaN are the largest of all.
  SIMT_DEVICE GroupScale(uint32_t largest, float divisor) {
    using namespace simt;
    const bool finite = largest < 0x7f800000u;
    if constexpr (kScale == BlockScale::kE4M3) {
      code = to_e4m3(divisor * (as_float(largest) / 6.0f));
      if (code == 0) code = 0x20;  // of zeros: 1/8
      if (!finite) code = 0x7f;
      factor = as_float(code << 20) * 0x1p120f / divisor;
    } else {
      const uint32_t exponent = (largest + 0x200000u) >> 23;  // 1.75 and above carries
      code = exponent > 2 ? exponent - 2 : 0;
      if (!finite) code = 0xff;
      factor = finite ? as_float((254u - code) << 23) : 0.0f;
    }
  }
  SIMT_DEVICE float quotient(float value) const {
    return kScale == BlockScale::kE4M3 ? value / factor : value * factor;
  }
};

template <BlockScale kScale, bool kF16>
SIMT_KERNEL void SIMT_BOUNDS(kQuantizeThreads, 4) quantize_kernel(QuantizeArgs p) {
  using namespace simt;
  constexpr int kLanes = group_columns(kScale) / 8;  // of a group
  constexpr int kRowLanes = 4 * kLanes;              // of a word of scales
  constexpr int kRowsAtOnce = 32 / kRowLanes, kPasses = kQuantizeRows / kRowsAtOnce;
  const int lane = thread_index() % 32, warp = thread_index() / 32;
  const int first_row =
      block_y() / kQuantizeTilesY * kW4A4Rows + (block_y() % kQuantizeTilesY * 4 + warp) * 2;
  const int word = block_x(), words = p.chunks * scale_words(kScale);
  const int column = word * kRowLanes * 8 + lane % kRowLanes * 8;

  // The row of a pass and a lane's part of the warp; also where its scales go.
  const auto row_of = [&](int at) { return first_row + at / 4 + at % 4 * 32; };
  U32x4 x[kPasses];
  SIMT_UNROLL
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = row_of(pass * kRowsAtOnce + lane / kRowLanes);
    x[pass] = {0, 0, 0, 0};
    if (row < p.m && column < p.k)
      x[pass] =
          ldg(reinterpret_cast<const U32x4*>(p.x + static_cast<int64_t>(row) * p.ldx + column));
  }
  uint32_t mine = 0;  // the word of scales that this lane stores
  SIMT_UNROLL
  for (int pass = 0; pass < kPasses; ++pass) {
    float values[8];
    uint32_t largest = 0;
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t pair = i < 2 ? x[pass].x : i < 4 ? x[pass].y : i < 6 ? x[pass].z : x[pass].w;
      const uint32_t bits = i % 2 == 0 ? pair & 0xffffu : pair >> 16;
      values[i] = kF16 ? from_f16(static_cast<uint16_t>(bits)) : as_float(bits << 16);
      const uint32_t magnitude = as_bits(values[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    SIMT_UNROLL
    for (int mask = 1; mask < kLanes; mask *= 2) {
      const uint32_t other = shfl_xor(largest, mask);
      largest = other > largest ? other : largest;
    }
    const GroupScale<kScale> scale(largest, p.divisor);
    SIMT_UNROLL
    for (float& value : values) value = scale.quotient(value);
    const int row = row_of(pass * kRowsAtOnce + lane / kRowLanes);
    const uint32_t codes = to_e2m1x8(values);
    if (row < p.m)
      stg(reinterpret_cast<uint32_t*>(
              p.codes + static_cast<int64_t>(row) * (p.chunks * kW4A4CodeBytes) + column / 2),
          codes);
    uint32_t scales = scale.code << (lane / kLanes % 4 * 8);
    SIMT_UNROLL
    for (int mask = kLanes; mask < kRowLanes; mask *= 2) scales |= shfl_xor(scales, mask);
    if (lane % kRowLanes == pass) mine = scales;
  }
  const int pass = lane % kRowLanes;
  if (pass < kPasses) {
    const int row = row_of(pass * kRowsAtOnce + lane / kRowLanes);
    stg(reinterpret_cast<uint32_t*>(p.scales + scale_offset(row, 4 * word, words)), mine);
  }
}

}  // namespace curvq::cuda
