#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/integer_tile.h"

namespace curvq::internal {
namespace {

constexpr int kVectors = 2;  // of eight columns
static_assert(kVectors * 8 == kIntegerColumns);

__m256i load_pair(const int16_t* x) {  // two neighbours in every lane
  return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(x)));
}

__m256i load_weights(const int16_t* w) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
}

// sum += a0 b0 + a1 b1 in each lane. Spelt out: compilers gather all products of a step before its
// sums, and run out of registers.
[[gnu::always_inline]] inline void multiply_add(__m256i& sum, __m256i a, __m256i b) {
  __m256i product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
}

// One pair of each of kM rows with all columns.
template <int kM>
[[gnu::always_inline]] inline void add_pair(__m256i (&dots)[kM][kVectors], const int16_t* x,
                                            int64_t ldx, const int16_t* w) {
  const __m256i w0 = load_weights(w), w1 = load_weights(w + 16);
  for (int i = 0; i < kM; ++i) {
    const __m256i xs = load_pair(x + i * ldx);
    multiply_add(dots[i][0], xs, w0);
    multiply_add(dots[i][1], xs, w1);
  }
}

// kM rows: 2 kM integer sums, as many float ones, two vectors of w, one of x and a product; 3 fill
// the 16 registers.
template <int kM>
void micro_tile(const Int16Panel& panel, int64_t row) {
  const int64_t ldx = panel.ldx, pairs = panel.lanes, blocks = panel.blocks;
  const int16_t* x = panel.x + row * ldx;
  const int16_t* w = panel.w;
  const float* scales = panel.scales;
  for (int i = 0; i < kM; ++i) __builtin_prefetch(panel.out + (row + i) * panel.ldout, 1);
  __m256 sums[kM][kVectors];
  for (int i = 0; i < kM; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_setzero_ps();
  }
  for (int64_t b = 0; b < blocks; ++b, scales += kIntegerColumns) {
    __m256i dots[kM][kVectors];
    for (int i = 0; i < kM; ++i) {
      for (int v = 0; v < kVectors; ++v) dots[i][v] = _mm256_setzero_si256();
    }
    for (int64_t p = 0; p < pairs; p += 4, x += 8, w += 8 * kIntegerColumns) {
      add_pair<kM>(dots, x, ldx, w);
      add_pair<kM>(dots, x + 2, ldx, w + 2 * kIntegerColumns);
      add_pair<kM>(dots, x + 4, ldx, w + 4 * kIntegerColumns);
      add_pair<kM>(dots, x + 6, ldx, w + 6 * kIntegerColumns);
    }
    for (int v = 0; v < kVectors; ++v) {
      const __m256 scale = _mm256_loadu_ps(scales + 8 * v);
      for (int i = 0; i < kM; ++i)
        sums[i][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[i][v]), scale, sums[i][v]);
    }
  }
  for (int i = 0; i < kM; ++i) {
    const __m256 scale = _mm256_set1_ps(panel.x_scales[(row + i) * panel.x_scale_stride]);
    for (int v = 0; v < kVectors; ++v) {
      float* out = panel.out + (row + i) * panel.ldout + 8 * v;
      const __m256 before = panel.accumulate ? _mm256_loadu_ps(out) : _mm256_setzero_ps();
      _mm256_storeu_ps(out, _mm256_fmadd_ps(sums[i][v], scale, before));
    }
  }
}

}  // namespace

void int16_tile_avx2(const Int16Panel& panel) {
  int64_t row = 0;
  for (; row + 3 <= panel.m; row += 3) micro_tile<3>(panel, row);
  if (panel.m - row == 2) micro_tile<2>(panel, row);
  if (panel.m - row == 1) micro_tile<1>(panel, row);
}

}  // namespace curvq::internal
#endif
