#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/double_tile.h"

namespace curvq::internal {
namespace {

constexpr int kRows = 4;  // whose sums are in registers together

}  // namespace

void double_tile_avx2(int64_t depth, const double* a, int64_t lda, const double* b, double* c,
                      int64_t ldc) {
  for (int64_t first = 0; first < kDoubleTile; first += kRows, a += kRows, c += kRows * ldc) {
    __m256d low[kRows], high[kRows];
    for (int i = 0; i < kRows; ++i) low[i] = high[i] = _mm256_setzero_pd();
    for (int64_t k = 0; k < depth; ++k) {
      const __m256d b_low = _mm256_loadu_pd(b + k * 8), b_high = _mm256_loadu_pd(b + k * 8 + 4);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const __m256d x = _mm256_broadcast_sd(a + k * lda + i);
        low[i] = _mm256_fmadd_pd(x, b_low, low[i]);
        high[i] = _mm256_fmadd_pd(x, b_high, high[i]);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      double* to = c + i * ldc;
      _mm256_storeu_pd(to, _mm256_add_pd(_mm256_loadu_pd(to), low[i]));
      _mm256_storeu_pd(to + 4, _mm256_add_pd(_mm256_loadu_pd(to + 4), high[i]));
    }
  }
}

}  // namespace curvq::internal
#endif
