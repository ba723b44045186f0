#include "compress/lanes.h"

#include "formats/simd_clones.h"

namespace curvq::internal {

CURVQ_SIMD_CLONES void subtract_scaled(float* y, float a, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] -= a * x[i];
}

CURVQ_SIMD_CLONES void scaled_error(float* error, const float* w, const float* rounded,
                                    float inverse, int64_t n) {
  for (int64_t i = 0; i < n; ++i) error[i] = (w[i] - rounded[i]) * inverse;
}

CURVQ_SIMD_CLONES void add_squares(float* sum, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i] * x[i];
}

}  // namespace curvq::internal
