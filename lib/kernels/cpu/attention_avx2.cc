#if defined(__x86_64__)
#include "kernels/attention_kernels.h"
#include "kernels/cpu/attention_transpose.h"
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
  static void transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    transpose_8x8(from, stride, to, to_stride);
  }
};

}  // namespace

void attention_step_avx2(const AttentionTile& tile, int64_t first, int64_t count, const float* k,
                         int64_t k_stride, const float* v, int64_t v_stride) {
  AttentionKernels<Avx2>::step(tile, first, count, k, k_stride, v, v_stride);
}

}  // namespace curvq::internal
#endif
