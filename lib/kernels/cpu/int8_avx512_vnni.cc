#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/integer_tile.h"

namespace curvq::internal {
namespace {

static_assert(kIntegerColumns == 16);

// kM rows: kM integer sums, kM float ones, one vector of w; 12 use 26 of the 32 registers.
template <int kM, int kLanes>
void micro_tile(const Int8Panel& panel, int64_t row) {
  const uint8_t* x = panel.x + row * panel.ldx;
  const int8_t* w = panel.w;
  const float* x_scales = panel.x_scales + row * panel.x_scale_stride;
  __m512 sums[kM];
  for (int i = 0; i < kM; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t b = 0; b < panel.blocks; ++b) {
    const __m512i offset = _mm512_madd_epi16(
        _mm512_loadu_si512(panel.offsets + 2 * b * kIntegerColumns), _mm512_set1_epi16(1));
    __m512i dots[kM];
    for (int i = 0; i < kM; ++i) dots[i] = offset;
#pragma GCC unroll 8
    for (int p = 0; p < kLanes; ++p, w += 64, x += 4) {
      const __m512i ws = _mm512_loadu_si512(w);
      for (int i = 0; i < kM; ++i) {
        const __m512i xs =
            _mm512_castps_si512(_mm512_set1_ps(*reinterpret_cast<const float*>(x + i * panel.ldx)));
        dots[i] = _mm512_dpbusd_epi32(dots[i], xs, ws);
      }
    }
    const __m512 scale = _mm512_loadu_ps(panel.scales + b * kIntegerColumns);
    for (int i = 0; i < kM; ++i) {
      const __m512 both =
          _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[i * panel.x_scale_stride + b]));
      sums[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), both, sums[i]);
    }
  }
  for (int i = 0; i < kM; ++i) {
    float* out = panel.out + (row + i) * panel.ldout;
    if (panel.accumulate) sums[i] = _mm512_add_ps(_mm512_loadu_ps(out), sums[i]);
    _mm512_storeu_ps(out, sums[i]);
  }
}

template <int kLanes>
void all_rows(const Int8Panel& panel) {
  int64_t row = 0;
  for (; row + 12 <= panel.m; row += 12) micro_tile<12, kLanes>(panel, row);
  for (; row + 4 <= panel.m; row += 4) micro_tile<4, kLanes>(panel, row);
  for (; row < panel.m; ++row) micro_tile<1, kLanes>(panel, row);
}

}  // namespace

void int8_tile_avx512_vnni(const Int8Panel& panel) {
  panel.lanes == 4 ? all_rows<4>(panel) : all_rows<8>(panel);
}

}  // namespace curvq::internal
#endif
