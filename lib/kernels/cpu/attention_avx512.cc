#if defined(__x86_64__)
#include "kernels/attention_kernels.h"
#include "kernels/cpu/attention_transpose.h"
#include "kernels/cpu/panel_avx512_vectors.h"

namespace curvq::internal {
namespace {

struct Avx512 : Avx512Vectors {
  static F max(F a, F b) { return _mm512_maskz_max_ps(0xffff, a, b); }
  // 2^n of magic + n: the integer lies in the lowest bits.
  static F power_of_two(F shifted) {
    const I exponent = _mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(0x3f800000)));
  }
  static void transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    transpose_8x8(from, stride, to, to_stride);
  }
};

}  // namespace

void attention_step_avx512(const AttentionTile& tile, int64_t first, int64_t count, const float* k,
                           int64_t k_stride, const float* v, int64_t v_stride) {
  AttentionKernels<Avx512>::step(tile, first, count, k, k_stride, v, v_stride);
}

}  // namespace curvq::internal
#endif
