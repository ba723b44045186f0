#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/gemm_tile.h"

namespace curvq::internal {
namespace {

constexpr int64_t kLanes = 16;
// 6 x 4 sums, 6 vectors of x and 1 of w fit into the 32 registers.
constexpr int64_t kTileM = 6, kTileRows = 4;

float horizontal_sum(__m512 v) {
  // The masked form, because gcc 12 warns of its own header in the plain one.
  const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0),
                                    _mm512_maskz_extractf32x8_ps(0xff, v, 1));
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// kM rows of x times kRows rows of w.
template <int kM, int kRows>
void micro_tile(const float* x, int64_t ldx, const float* w, int64_t k_size, float* out,
                int64_t ldout) {
  __m512 sums[kM][kRows];
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kRows; ++j) sums[i][j] = _mm512_setzero_ps();
  }
  int64_t k = 0;
  for (; k + kLanes <= k_size; k += kLanes) {
    __m512 xs[kM];
    for (int i = 0; i < kM; ++i) xs[i] = _mm512_loadu_ps(x + i * ldx + k);
    for (int j = 0; j < kRows; ++j) {
      const __m512 ws = _mm512_loadu_ps(w + j * k_size + k);
      for (int i = 0; i < kM; ++i) sums[i][j] = _mm512_fmadd_ps(xs[i], ws, sums[i][j]);
    }
  }
  if (k < k_size) {  // lanes behind the end are 0 * 0
    const __mmask16 mask = static_cast<__mmask16>((1u << (k_size - k)) - 1);
    for (int j = 0; j < kRows; ++j) {
      const __m512 ws = _mm512_maskz_loadu_ps(mask, w + j * k_size + k);
      for (int i = 0; i < kM; ++i) {
        const __m512 xs = _mm512_maskz_loadu_ps(mask, x + i * ldx + k);
        sums[i][j] = _mm512_fmadd_ps(xs, ws, sums[i][j]);
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

void gemm_tile_avx512(const float* x, int64_t ldx, int64_t m, const float* w, int64_t rows,
                      int64_t k_size, float* out, int64_t ldout) {
  int64_t i = 0;
  for (; i + kTileM <= m; i += kTileM) {
    row_of_tiles<kTileM>(x + i * ldx, ldx, w, rows, k_size, out + i * ldout, ldout);
  }
  const float* last_x = x + i * ldx;
  float* last_out = out + i * ldout;
  switch (m - i) {
    case 5:
      return row_of_tiles<5>(last_x, ldx, w, rows, k_size, last_out, ldout);
    case 4:
      return row_of_tiles<4>(last_x, ldx, w, rows, k_size, last_out, ldout);
    case 3:
      return row_of_tiles<3>(last_x, ldx, w, rows, k_size, last_out, ldout);
    case 2:
      return row_of_tiles<2>(last_x, ldx, w, rows, k_size, last_out, ldout);
    case 1:
      return row_of_tiles<1>(last_x, ldx, w, rows, k_size, last_out, ldout);
  }
}

}  // namespace curvq::internal
#endif
