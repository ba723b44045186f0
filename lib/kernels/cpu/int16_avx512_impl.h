// Both AVX-512 forms of integer_tile.h; included by one source each, after it has defined
//   __m512i multiply_add(__m512i sum, __m512i a, __m512i b)   sum + a0 b0 + a1 b1 in each lane
#pragma once

#include <immintrin.h>

#include "kernels/integer_tile.h"

namespace curvq::internal {
namespace {

static_assert(kIntegerColumns == 16);

// kM rows: kM integer sums, kM float ones, one vector of w; 12 use 26 of the 32 registers.
template <int kM>
void micro_tile(const Int16Panel& panel, int64_t row) {
  const int16_t* x = panel.x + row * panel.ldx;
  const int16_t* w = panel.w;
  const int64_t pairs = panel.lanes;
  __m512 sums[kM];
  for (int i = 0; i < kM; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t b = 0; b < panel.blocks; ++b) {
    __m512i dots[kM];
    for (int i = 0; i < kM; ++i) dots[i] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int64_t p = 0; p < pairs; ++p, w += 32, x += 2) {
      const __m512i ws = _mm512_loadu_si512(w);
      for (int i = 0; i < kM; ++i) {
        const __m512i xs =
            _mm512_castps_si512(_mm512_set1_ps(*reinterpret_cast<const float*>(x + i * panel.ldx)));
        dots[i] = multiply_add(dots[i], xs, ws);
      }
    }
    const __m512 scale = _mm512_loadu_ps(panel.scales + b * kIntegerColumns);
    for (int i = 0; i < kM; ++i)
      sums[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), scale, sums[i]);
  }
  for (int i = 0; i < kM; ++i) {
    const __m512 scale = _mm512_set1_ps(panel.x_scales[(row + i) * panel.x_scale_stride]);
    float* out = panel.out + (row + i) * panel.ldout;
    const __m512 before = panel.accumulate ? _mm512_loadu_ps(out) : _mm512_setzero_ps();
    _mm512_storeu_ps(out, _mm512_fmadd_ps(sums[i], scale, before));
  }
}

void all_rows(const Int16Panel& panel) {
  int64_t row = 0;
  for (; row + 12 <= panel.m; row += 12) micro_tile<12>(panel, row);
  for (; row + 4 <= panel.m; row += 4) micro_tile<4>(panel, row);
  for (; row < panel.m; ++row) micro_tile<1>(panel, row);
}

}  // namespace
}  // namespace curvq::internal
