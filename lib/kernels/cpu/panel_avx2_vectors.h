// Vectors of AVX2, FMA and F16C for panel_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace curvq::internal {
namespace {

struct Avx2Vectors {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  // 12 sums, 2 vectors of weights and one of inputs; 8 integer sums, which halve the loads of
  // weights for each product.
  static constexpr int kFloatRows = 6, kFloatPanels = 1, kByteRows = 4, kBytePanels = 1;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F set1(float v) { return _mm256_set1_ps(v); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  // Markstein's: right to the last bit but for quotients near underflow, in a third of the time.
  static F quotient(F a, F b, F reciprocal) {
    const F near = _mm256_mul_ps(a, reciprocal);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(near, b, a), reciprocal, near);
  }

  template <class T>
  static void keep(T& v) {
    asm volatile("" : "+x"(v));
  }

  static I load_int(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
  static void store_int(void* p, I v) { _mm256_storeu_si256(static_cast<I*>(p), v); }
  static I set1_int(int32_t v) { return _mm256_set1_epi32(v); }
  static I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
  static I mul_int(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static F scaled(I v, F scale, F shift) { return fma(_mm256_castsi256_ps(v), scale, shift); }
  static F to_float(I v) { return _mm256_cvtepi32_ps(v); }

  static I load_table(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I low_nibbles(I v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
  static I high_nibbles(I v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
  static I lookup(I table, I bytes) { return _mm256_shuffle_epi8(table, bytes); }
  static I lookup_low(I table, I codes) { return lookup(table, low_nibbles(codes)); }
  static I lookup_high(I table, I codes) { return lookup(table, high_nibbles(codes)); }
  static I sub_bytes(I a, I b) { return _mm256_sub_epi8(a, b); }

  static constexpr bool kLooksUpFloats = false;
  template <int kByte>
  static F byte(I v) {
    if constexpr (kByte < 3) v = _mm256_slli_epi32(v, 24 - 8 * kByte);
    return to_float(_mm256_srai_epi32(v, 24));
  }
  // seeeemmm as the top bits of a float32 whose bias is 120 more.
  template <int kByte>
  static F e4m3(I v) {
    if constexpr (kByte < 3) v = _mm256_slli_epi32(v, 24 - 8 * kByte);
    v = _mm256_and_si256(_mm256_srai_epi32(v, 4), _mm256_set1_epi32(static_cast<int>(0x87f00000)));
    return mul(_mm256_castsi256_ps(v), set1(0x1p120f));
  }

  static __m128i load_8_bytes(const uint8_t* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  static __m128i load_16_bytes(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static F e4m3_as_f16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load_8_bytes(p)), 7));
  }
  // The exponent's place in a float32; 2^-127 is subnormal.
  static F e8m0_scale(const uint8_t* p) {
    const I bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(load_8_bytes(p)), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(bits, _mm256_set1_epi32(0x00400000)));
  }
  static F f16_scale(const uint8_t* p) { return _mm256_cvtph_ps(load_16_bytes(p)); }
  static F bf16_scale(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(p)), 16));
  }
};

}  // namespace
}  // namespace curvq::internal
