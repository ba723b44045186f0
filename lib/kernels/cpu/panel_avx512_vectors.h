// Vectors of AVX-512 F, BW, VL and DQ for panel_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace curvq::internal {
namespace {

struct Avx512Vectors {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  // 24 sums, 2 vectors of weights and one of inputs; 12 sums of integers and 12 of float32.
  static constexpr int kFloatRows = 12, kFloatPanels = 2, kByteRows = 6, kBytePanels = 2;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F set1(float v) { return _mm512_set1_ps(v); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  // Markstein's: right to the last bit but for quotients near underflow, in a tenth of the time.
  static F quotient(F a, F b, F reciprocal) {
    const F near = _mm512_mul_ps(a, reciprocal);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(near, b, a), reciprocal, near);
  }

  template <class T>
  static void keep(T& v) {
    asm volatile("" : "+v"(v));
  }

  // Where gcc 12 warns of its own header, the forms with a mask of ones.
  static I load_int(const void* p) { return _mm512_loadu_si512(p); }
  static void store_int(void* p, I v) { _mm512_storeu_si512(p, v); }
  static I set1_int(int32_t v) { return _mm512_set1_epi32(v); }
  static I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  static I mul_int(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static F scaled(I v, F scale, F shift) { return fma(_mm512_castsi512_ps(v), scale, shift); }
  static F to_float(I v) { return _mm512_maskz_cvtepi32_ps(0xffff, v); }

  static I load_table(const uint8_t* p) {
    return _mm512_maskz_broadcast_i32x4(0xffff, load_16_bytes(p));
  }
  static I low_nibbles(I v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
  static I high_nibbles(I v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
  static I lookup(I table, I bytes) { return _mm512_shuffle_epi8(table, bytes); }
  static I lookup_low(I table, I codes) { return lookup(table, low_nibbles(codes)); }
  static I lookup_high(I table, I codes) { return lookup(table, high_nibbles(codes)); }
  static I sub_bytes(I a, I b) { return _mm512_sub_epi8(a, b); }

  static constexpr bool kLooksUpFloats = true;
  template <int kShift>
  static F lookup_floats(F table, I codes) {
    if constexpr (kShift > 0) codes = _mm512_maskz_srli_epi32(0xffff, codes, kShift);
    return _mm512_maskz_permutexvar_ps(0xffff, codes, table);  // by the low four bits
  }
  template <int kByte>
  static F byte(I v) {
    if constexpr (kByte < 3) v = _mm512_maskz_slli_epi32(0xffff, v, 24 - 8 * kByte);
    return to_float(_mm512_maskz_srai_epi32(0xffff, v, 24));
  }
  // seeeemmm as the top bits of a float32 whose bias is 120 more.
  template <int kByte>
  static F e4m3(I v) {
    if constexpr (kByte < 3) v = _mm512_maskz_slli_epi32(0xffff, v, 24 - 8 * kByte);
    v = _mm512_and_si512(_mm512_maskz_srai_epi32(0xffff, v, 4),
                         set1_int(static_cast<int>(0x87f00000)));
    return mul(_mm512_castsi512_ps(v), set1(0x1p120f));
  }

  static __m128i load_16_bytes(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static __m256i load_32_bytes(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static F e4m3_as_f16(const uint8_t* p) {
    const __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16_bytes(p)), 7);
    return _mm512_maskz_cvtph_ps(0xffff, half);
  }
  // The exponent's place in a float32; 2^-127 is subnormal.
  static F e8m0_scale(const uint8_t* p) {
    const I wide = _mm512_maskz_cvtepu8_epi32(0xffff, load_16_bytes(p));
    const I bits = _mm512_maskz_slli_epi32(0xffff, wide, 23);
    return _mm512_castsi512_ps(_mm512_maskz_max_epi32(0xffff, bits, set1_int(0x00400000)));
  }
  static F f16_scale(const uint8_t* p) { return _mm512_maskz_cvtph_ps(0xffff, load_32_bytes(p)); }
  static F bf16_scale(const uint8_t* p) {
    const I wide = _mm512_maskz_cvtepu16_epi32(0xffff, load_32_bytes(p));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
  }
};

}  // namespace
}  // namespace curvq::internal
