// What each operation of simt.h returns, on a device and in the emulator: one warp writes the
// results of all of them. gpu_check runs both and compares.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/simt/simt.h"

namespace curvq::simt {

constexpr int kConformanceIn = 8, kConformanceOut = 48;  // words a lane
// Of the results, those of a product of general numbers, which may differ in rounding.
constexpr int kRoundedFirst = 4, kRoundedLast = 7;
// From here on those of block-scaled products.
constexpr int kBlockScaledFirst = 34;

// Words of a lane: 0-3 pairs of small integers in bfloat16; 4, 5 finite bfloat16 of all sizes
// around one and subnormal ones; 6 small integers in float16; 7 any bits.
std::vector<uint32_t> conformance_input();

std::vector<uint32_t> run_conformance_emulated(const std::vector<uint32_t>& in);
// Empty, or what went wrong. `block_scaled`: the device has block-scaled mma.sync; without it their
// results are those of the emulator.
std::string run_conformance_device(const std::vector<uint32_t>& in, bool block_scaled,
                                   std::vector<uint32_t>* out);

inline namespace SIMT_BACKEND {

template <bool kBlockScaled>
SIMT_KERNEL void conformance_kernel(const uint32_t* in, uint32_t* out) {
  const int lane = thread_index();
  uint32_t w[kConformanceIn], r[kConformanceOut] = {};
  for (int i = 0; i < kConformanceIn; ++i) w[i] = ldg(in + lane * kConformanceIn + i);
  const auto keep = [&r](int at, const float(&d)[4]) {
    for (int i = 0; i < 4; ++i) {
      union {
        float value;
        uint32_t bits;
      } both{d[i]};
      r[at + i] = both.bits;
    }
  };
  float exact[4] = {}, general[4] = {}, half[4] = {};
  const uint32_t a[4] = {w[0], w[1], w[2], w[3]}, b[4] = {w[4], w[5], w[5], w[4]},
                 c[4] = {w[6], rotate_left(w[6], 16), w[6], w[6]};
  mma_bf16(exact, a, w[1], w[2]);
  mma_bf16(general, b, w[4], w[5]);
  mma_f16(half, c, w[6], rotate_left(w[6], 16));
  keep(0, exact);
  keep(4, general);
  keep(8, half);

  sts(static_cast<uint32_t>(lane * 16), w[7]);
  for (int i = 1; i < 4; ++i) sts(static_cast<uint32_t>(lane * 16 + 4 * i), w[7] ^ w[i]);
  sync_warp();
  uint32_t rows[4];
  ldmatrix_x4(rows, static_cast<uint32_t>((lane ^ 5) * 16));
  for (int i = 0; i < 4; ++i) r[12 + i] = rows[i];

  r[16] = prmt(w[7], w[0], 0x5410u);
  r[17] = prmt(w[7], w[0], 0x3276u);
  r[18] = rotate_left(w[7], 4);
  r[19] = rotate_left(w[7], 10);
  r[20] = mul_bf16x2(w[4], w[5]);
  r[21] = sub_bf16x2(w[4], w[5]);
  r[22] = mul_f16x2(w[6], w[6]) ^ sub_f16x2(w[6], rotate_left(w[6], 16));
  r[23] = to_bf16(as_float(w[4]));
  r[24] = to_f16(as_float(w[4]));
  union {
    float value;
    uint32_t bits;
  } shuffled{shfl_xor(as_float(w[4]), 5)};
  r[25] = shuffled.bits;

  sync_warp();
  cp_async<16>(static_cast<uint32_t>(lane * 16), in + lane * kConformanceIn, lane % 17);
  cp_async_commit();
  cp_async_wait<0>();
  const U32x4 copied = lds<U32x4>(static_cast<uint32_t>(lane * 16));
  r[26] = copied.x;
  r[27] = copied.y;
  r[28] = copied.z;
  r[29] = copied.w;

  const float ties[8] = {0.25f, -0.75f, 1.25f, -1.75f, 2.5f, -3.5f, 5.0f, -7.0f};
  float tried[8];  // of lane 0 the ties, of the others eighths, -8 ... 8
  for (int i = 0; i < 8; ++i)
    tried[i] = lane == 0 ? ties[i] : (static_cast<int>(w[7] >> 4 * i & 0x7f) - 64) * 0.125f;
  r[30] = to_e2m1x8(tried);
  r[31] = to_e4m3(as_float(w[4] & 0x7f7fffffu)) ^ to_e4m3(tried[0]) << 8;
  r[32] = as_bits(from_f16(static_cast<uint16_t>(w[6]))) ^
          shfl_xor(as_bits(from_f16(static_cast<uint16_t>(w[7] & 0x83ffu))), 3);
  if constexpr (kBlockScaled) {
    // Scales are 2^-2 ... 2, another for each row and group, so that all sums are exact.
    const uint32_t steps = (w[7] >> 3 ^ w[7]) & 0x03030303u, other = (w[7] >> 5) & 0x03030303u;
    const uint32_t codes[4] = {w[7], w[7] * 5, w[7] * 9, w[7] * 13};
    float nvfp4[4] = {}, mxfp4[4] = {}, mxfp8[4] = {};
    mma_nvfp4<0, 1>(nvfp4, codes, w[7] * 3, w[7] * 7, 0x28282828u + steps * 8,
                    0x28282828u + other * 8);
    mma_mxfp4<2, 0>(mxfp4, codes, w[7] * 3, w[7] * 7, 0x7d7d7d7du + steps, 0x7d7d7d7du + other);
    // E4M3 of 1/8 ... 3/2: four exponents, one bit of mantissa, a sign.
    const auto small = [](uint32_t word) { return (word & 0x9c9c9c9cu) ^ 0x20202020u; };
    const uint32_t bytes[4] = {small(codes[0]), small(codes[1]), small(codes[2]), small(codes[3])};
    mma_mxfp8<3, 1>(mxfp8, bytes, small(w[7] * 3), small(w[7] * 7), 0x7d7d7d7du + steps,
                    0x7d7d7d7du + other);
    keep(kBlockScaledFirst + 8, mxfp8);
    keep(kBlockScaledFirst, nvfp4);
    keep(kBlockScaledFirst + 4, mxfp4);
  }
  for (int i = 0; i < kConformanceOut; ++i) stg(out + lane * kConformanceOut + i, r[i]);
}

}  // namespace SIMT_BACKEND
}  // namespace curvq::simt
