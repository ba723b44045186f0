#if defined(__x86_64__)
#include "kernels/attention_kernels.h"
#include "kernels/cpu/panel_avx2_vectors.h"

namespace curvq::internal {
namespace {

struct Avx2 : Avx2Vectors {
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  // 2^n of magic + n: the integer lies in the lowest bits.
  static F power_of_two(F shifted) {
    const I exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
  }
  // to[j, i] = from[i, j] of 8 x 8.
  static void transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    F half[8];
    for (int i = 0; i < 4; ++i) {
      // Rows i and i + 4, columns 0..3 and 4..7.
      for (int h = 0; h < 2; ++h) {
        const F low = _mm256_castps128_ps256(_mm_loadu_ps(from + i * stride + 4 * h));
        half[4 * h + i] =
            _mm256_insertf128_ps(low, _mm_loadu_ps(from + (i + 4) * stride + 4 * h), 1);
      }
    }
    for (int h = 0; h < 2; ++h) {
      const F* r = half + 4 * h;
      const F a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
      const F c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
      float* out = to + 4 * h * to_stride;
      store(out, _mm256_shuffle_ps(a, c, 0x44));
      store(out + to_stride, _mm256_shuffle_ps(a, c, 0xee));
      store(out + 2 * to_stride, _mm256_shuffle_ps(b, d, 0x44));
      store(out + 3 * to_stride, _mm256_shuffle_ps(b, d, 0xee));
    }
  }
};

}  // namespace

void attention_step_avx2(const AttentionTile& tile, int64_t first, int64_t count, const float* k,
                         int64_t k_stride, const float* v, int64_t v_stride) {
  AttentionKernels<Avx2>::step(tile, first, count, k, k_stride, v, v_stride);
}

}  // namespace curvq::internal
#endif
