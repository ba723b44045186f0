#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/double_tile.h"

namespace curvq::internal {

void double_tile_avx512(int64_t depth, const double* a, int64_t lda, const double* b, double* c,
                        int64_t ldc) {
  __m512d sums[kDoubleTile];
#pragma GCC unroll 8
  for (__m512d& sum : sums) sum = _mm512_setzero_pd();
  for (int64_t k = 0; k < depth; ++k, a += lda, b += 8) {
    const __m512d columns = _mm512_loadu_pd(b);
#pragma GCC unroll 8
    for (int i = 0; i < kDoubleTile; ++i)
      sums[i] = _mm512_fmadd_pd(_mm512_set1_pd(a[i]), columns, sums[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kDoubleTile; ++i) {
    double* to = c + i * ldc;
    _mm512_storeu_pd(to, _mm512_add_pd(_mm512_loadu_pd(to), sums[i]));
  }
}

}  // namespace curvq::internal
#endif
