// Two words of 4-bit codes to operands of the tensor core. Linear in the codes' bits up to a
// constant, so packing asks this function where each bit belongs.
#pragma once

#include "kernels/cuda/simt/simt.h"
#include "kernels/cuda/w4a16_layout.h"

namespace curvq::cuda {

// E2M1 has its exponent and mantissa at the low end of those of a wider float, so that putting
// s eem into place gives the value exactly, times 2^-126 in bfloat16 and 2^-14 in float16 (0.5 is a
// subnormal there).
//
// bfloat16 takes bits 15, 8, 7, 6 of each half. Rotations by 0, 4 and 10 fill them three times from
// disjoint bits; the 4 bits that are left (mask 0x0603), joined with those of the other word
// rotated by 2, are again two such sets, rotated by 6 and 12: 8 operations a word.
SIMT_DEVICE void unpack_e2m1_bf16(uint32_t w0, uint32_t w1, uint32_t (&a)[2][4]) {
  constexpr uint32_t kPlace = 0x81c081c0u, kLeft = 0x06030603u;
  a[0][0] = w0 & kPlace;
  a[0][1] = simt::rotate_left(w0, 4) & kPlace;
  a[0][2] = simt::rotate_left(w0, 10) & kPlace;
  a[1][0] = w1 & kPlace;
  a[1][1] = simt::rotate_left(w1, 4) & kPlace;
  a[1][2] = simt::rotate_left(w1, 10) & kPlace;
  const uint32_t left = (w0 & kLeft) | (simt::rotate_left(w1, 2) & ~kLeft);
  a[0][3] = simt::rotate_left(left, 6) & kPlace;
  a[1][3] = simt::rotate_left(left, 12) & kPlace;
}

// float16 takes bits 15, 11, 10, 9, which no rotations tile: 11 operations a word.
SIMT_DEVICE void unpack_e2m1_f16(uint32_t w, uint32_t (&a)[4]) {
  constexpr uint32_t kPlace = 0x8e008e00u, kSign = 0x80008000u, kMagnitude = 0x0e000e00u;
  a[0] = w & kPlace;
  a[1] = (w << 8) & kPlace;
  a[2] = ((w >> 3) & kMagnitude) | ((w << 7) & kSign);
  a[3] = ((w << 5) & kMagnitude) | ((w << 15) & kSign);
}

// The code plus 128 (bfloat16) or 1024 (float16), whose unit is one.
template <bool kF16>
SIMT_DEVICE void unpack_int4(uint32_t w, uint32_t (&a)[4]) {
  constexpr uint32_t kOne = kF16 ? 0x64006400u : 0x43004300u, kCode = 0x000f000fu;
  a[0] = (w & kCode) | kOne;
  a[1] = ((w >> 4) & kCode) | kOne;
  a[2] = ((w >> 8) & kCode) | kOne;
  a[3] = ((w >> 12) & kCode) | kOne;
}

template <W4Format kFormat, bool kF16>
SIMT_DEVICE void unpack(uint32_t w0, uint32_t w1, uint32_t (&a)[2][4]) {
  if constexpr (kFormat == W4Format::kInt4Group32 || kFormat == W4Format::kInt4Group64) {
    unpack_int4<kF16>(w0, a[0]);
    unpack_int4<kF16>(w1, a[1]);
  } else if constexpr (kF16) {
    unpack_e2m1_f16(w0, a[0]);
    unpack_e2m1_f16(w1, a[1]);
  } else {
    unpack_e2m1_bf16(w0, w1, a);
  }
}

// Byte `index` of `bytes` in both halves of a word.
SIMT_DEVICE uint32_t both_halves(uint32_t bytes, int index) {
  return simt::prmt(bytes, 0, 0x4040u | static_cast<uint32_t>(index * 0x101));
}

// What weights of a row are multiplied with: kNvfp4 2^119 (bfloat16) or 2^7 (float16) times the
// scale, kMxfp4 2^(code - 127).
template <W4Format kFormat, bool kF16>
SIMT_DEVICE uint32_t weight_scale(uint32_t bytes, int index) {
  const uint32_t code = both_halves(bytes, index);
  if constexpr (kFormat == W4Format::kNvfp4)
    return kF16 ? code * 128u : code * 16u + 0x70007000u;
  else
    return code * 128u;
}

// Code 0 of a row's group: 128 or 1024 plus the byte.
template <bool kF16>
SIMT_DEVICE uint32_t int4_offset(uint32_t bytes, int index) {
  return both_halves(bytes, index) + (kF16 ? 0x64006400u : 0x43004300u);
}

template <bool kF16>
SIMT_DEVICE uint32_t multiply(uint32_t a, uint32_t b) {
  if constexpr (kF16)
    return simt::mul_f16x2(a, b);
  else
    return simt::mul_bf16x2(a, b);
}
template <bool kF16>
SIMT_DEVICE uint32_t subtract(uint32_t a, uint32_t b) {
  if constexpr (kF16)
    return simt::sub_f16x2(a, b);
  else
    return simt::sub_bf16x2(a, b);
}
template <bool kF16>
SIMT_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kF16)
    simt::mma_f16(d, a, b0, b1);
  else
    simt::mma_bf16(d, a, b0, b1);
}
template <bool kF16>
SIMT_DEVICE uint16_t round_output(float value) {
  if constexpr (kF16)
    return simt::to_f16(value);
  else
    return simt::to_bf16(value);
}

}  // namespace curvq::cuda
