#include "compress/lanes.h"

#include "formats/simd_clones.h"

namespace curvq::internal {

CURVQ_SIMD_CLONES void subtract_scaled(float* y, float a, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] -= a * x[i];
}

CURVQ_SIMD_CLONES void subtract_product(float* y, const float* a, int64_t count, const float* x) {
  using Lanes = float __attribute__((vector_size(32), aligned(4), may_alias));
  constexpr int64_t kLanes = 8, kHalf = kStrip / 2;  // what fits into registers
  static_assert(kHalf == 4 * kLanes);
  for (int64_t half = 0; half < kStrip; half += kHalf) {
    Lanes* out = reinterpret_cast<Lanes*>(y + half);
    Lanes y0 = out[0], y1 = out[1], y2 = out[2], y3 = out[3];
    for (int64_t k = 0; k < count; ++k) {
      const Lanes* row = reinterpret_cast<const Lanes*>(x + k * kStrip + half);
      y0 -= a[k] * row[0];
      y1 -= a[k] * row[1];
      y2 -= a[k] * row[2];
      y3 -= a[k] * row[3];
    }
    out[0] = y0, out[1] = y1, out[2] = y2, out[3] = y3;
  }
}

CURVQ_SIMD_CLONES void scaled_error(float* error, const float* w, const float* rounded,
                                    float inverse, int64_t n) {
  for (int64_t i = 0; i < n; ++i) error[i] = (w[i] - rounded[i]) * inverse;
}

CURVQ_SIMD_CLONES void add_squares(float* sum, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i] * x[i];
}

}  // namespace curvq::internal
