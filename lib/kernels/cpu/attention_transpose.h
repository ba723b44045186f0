// Needs AVX.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace curvq::internal {
namespace {

// to[j, i] = from[i, j] of 8 x 8.
inline void transpose_8x8(const float* from, int64_t stride, float* to, int64_t to_stride) {
  __m256 half[8];
  for (int i = 0; i < 4; ++i) {
    // Rows i and i + 4, columns 0..3 and 4..7.
    for (int h = 0; h < 2; ++h) {
      const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(from + i * stride + 4 * h));
      half[4 * h + i] = _mm256_insertf128_ps(low, _mm_loadu_ps(from + (i + 4) * stride + 4 * h), 1);
    }
  }
  for (int h = 0; h < 2; ++h) {
    const __m256* r = half + 4 * h;
    const __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    float* out = to + 4 * h * to_stride;
    _mm256_storeu_ps(out, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(out + to_stride, _mm256_shuffle_ps(a, c, 0xee));
    _mm256_storeu_ps(out + 2 * to_stride, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(out + 3 * to_stride, _mm256_shuffle_ps(b, d, 0xee));
  }
}

}  // namespace
}  // namespace curvq::internal
