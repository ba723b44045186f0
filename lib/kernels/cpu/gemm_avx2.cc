#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/gemm_tile.h"

namespace curvq::internal {
namespace {

constexpr int64_t kLanes = 8;
// 3 x 4 sums, 3 vectors of x and 1 of w fill the 16 registers.
constexpr int64_t kTileM = 3, kTileRows = 4;

__m256i tail_mask(int64_t count) {  // the first `count` lanes, 0 < count < 8
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}

float horizontal_sum(__m256 v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// kM rows of x times kRows rows of w.
template <int kM, int kRows>
void micro_tile(const float* x, int64_t ldx, const float* w, int64_t k_size, float* out,
                int64_t ldout) {
  __m256 sums[kM][kRows];
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kRows; ++j) sums[i][j] = _mm256_setzero_ps();
  }
  int64_t k = 0;
  for (; k + kLanes <= k_size; k += kLanes) {
    __m256 xs[kM];
    for (int i = 0; i < kM; ++i) xs[i] = _mm256_loadu_ps(x + i * ldx + k);
    for (int j = 0; j < kRows; ++j) {
      const __m256 ws = _mm256_loadu_ps(w + j * k_size + k);
      for (int i = 0; i < kM; ++i) sums[i][j] = _mm256_fmadd_ps(xs[i], ws, sums[i][j]);
    }
  }
  if (k < k_size) {  // lanes behind the end are 0 * 0
    const __m256i mask = tail_mask(k_size - k);
    for (int j = 0; j < kRows; ++j) {
      const __m256 ws = _mm256_maskload_ps(w + j * k_size + k, mask);
      for (int i = 0; i < kM; ++i) {
        const __m256 xs = _mm256_maskload_ps(x + i * ldx + k, mask);
        sums[i][j] = _mm256_fmadd_ps(xs, ws, sums[i][j]);
      }
    }
  }
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kRows; ++j) out[i * ldout + j] = horizontal_sum(sums[i][j]);
  }
}

template <int kM>
void row_of_tiles(const float* x, int64_t ldx, const float* w, int64_t rows, int64_t k_size,
                  float* out, int64_t ldout) {
  int64_t j = 0;
  for (; j + kTileRows <= rows; j += kTileRows) {
    micro_tile<kM, kTileRows>(x, ldx, w + j * k_size, k_size, out + j, ldout);
  }
  for (; j < rows; ++j) micro_tile<kM, 1>(x, ldx, w + j * k_size, k_size, out + j, ldout);
}

}  // namespace

void gemm_tile_avx2(const float* x, int64_t ldx, int64_t m, const float* w, int64_t rows,
                    int64_t k_size, float* out, int64_t ldout) {
  int64_t i = 0;
  for (; i + kTileM <= m; i += kTileM) {
    row_of_tiles<kTileM>(x + i * ldx, ldx, w, rows, k_size, out + i * ldout, ldout);
  }
  if (m - i == 2) row_of_tiles<2>(x + i * ldx, ldx, w, rows, k_size, out + i * ldout, ldout);
  if (m - i == 1) row_of_tiles<1>(x + i * ldx, ldx, w, rows, k_size, out + i * ldout, ldout);
}

}  // namespace curvq::internal
#endif
