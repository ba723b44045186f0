#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/integer_tile.h"

namespace curvq::internal {
namespace {

constexpr int kVectors = 2;  // of eight columns
static_assert(kVectors * 8 == kIntegerColumns);

__m256i load_lane(const uint8_t* x) {  // four neighbours in every lane
  return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(x)));
}

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

// sum += x0 w0 + x1 w1 in 16 bits. Spelt out: compilers gather all products of a step before its
// sums, and run out of registers.
[[gnu::always_inline]] inline void multiply_add(__m256i& sum, __m256i x, __m256i w) {
  __m256i product;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(x), "x"(w));
}

// kM rows: 2 kM integer sums, as many float ones, two vectors of w, one of x and a product; 3 fill
// the 16 registers.
template <int kM, int kLanes>
void micro_tile(const Int8Panel& panel, int64_t row) {
  const int64_t ldx = panel.ldx;
  const uint8_t* x = panel.x + row * ldx;
  const int8_t* w = panel.w;
  const int16_t* offsets = panel.offsets;
  const float* scales = panel.scales;
  const float* x_scales = panel.x_scales + row * panel.x_scale_stride;
  for (int i = 0; i < kM; ++i) __builtin_prefetch(panel.out + (row + i) * panel.ldout, 1);
  __m256 sums[kM][kVectors];
  for (int i = 0; i < kM; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_setzero_ps();
  }
  for (int64_t b = 0; b < panel.blocks; ++b) {
    __m256i dots[kM][kVectors];  // 16 bits: even and odd pairs
    for (int v = 0; v < kVectors; ++v) {
      const __m256i offset = load(offsets + 16 * v);
      for (int i = 0; i < kM; ++i) dots[i][v] = offset;
    }
#pragma GCC unroll 8
    for (int p = 0; p < kLanes; ++p) {
      const __m256i w0 = load(w + 64 * p), w1 = load(w + 64 * p + 32);
      for (int i = 0; i < kM; ++i) {
        const __m256i xs = load_lane(x + i * ldx + 4 * p);
        multiply_add(dots[i][0], xs, w0);
        multiply_add(dots[i][1], xs, w1);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const __m256 scale = _mm256_loadu_ps(scales + 8 * v);
      for (int i = 0; i < kM; ++i) {
        const __m256i whole = _mm256_madd_epi16(dots[i][v], _mm256_set1_epi16(1));
        const __m256 both =
            _mm256_mul_ps(scale, _mm256_broadcast_ss(x_scales + i * panel.x_scale_stride + b));
        sums[i][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), both, sums[i][v]);
      }
    }
    x += 4 * kLanes;
    w += 64 * kLanes;
    offsets += 2 * kIntegerColumns;
    scales += kIntegerColumns;
  }
  for (int i = 0; i < kM; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      float* out = panel.out + (row + i) * panel.ldout + 8 * v;
      if (panel.accumulate) sums[i][v] = _mm256_add_ps(_mm256_loadu_ps(out), sums[i][v]);
      _mm256_storeu_ps(out, sums[i][v]);
    }
  }
}

template <int kLanes>
void all_rows(const Int8Panel& panel) {
  int64_t row = 0;
  for (; row + 3 <= panel.m; row += 3) micro_tile<3, kLanes>(panel, row);
  if (panel.m - row == 2) micro_tile<2, kLanes>(panel, row);
  if (panel.m - row == 1) micro_tile<1, kLanes>(panel, row);
}

}  // namespace

void int8_tile_avx2(const Int8Panel& panel) {
  panel.lanes == 4 ? all_rows<4>(panel) : all_rows<8>(panel);
}

}  // namespace curvq::internal
#endif
