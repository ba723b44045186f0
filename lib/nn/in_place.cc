#include "nn/in_place.h"

#include <cmath>

#include "formats/simd_clones.h"

namespace curvq::internal {

CURVQ_SIMD_CLONES void rotate_heads(float* x, int64_t heads, int64_t head_dim, int64_t rope_dim,
                                    const float* cos, const float* sin) {
  const int64_t half = rope_dim / 2;
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[i], b = x[half + i];
      x[i] = a * cos[i] - b * sin[i];
      x[half + i] = b * cos[half + i] + a * sin[half + i];
    }
  }
}

CURVQ_SIMD_CLONES void rms_norm_row(const float* x, int64_t n, const float* weight, float epsilon,
                                    float* out) {
  constexpr int64_t kLanes = 32;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += x[i + l] * x[i + l];
  }
  float sum = 0;
  for (; i < n; ++i) sum += x[i] * x[i];
  for (int64_t l = 0; l < kLanes; ++l) sum += sums[l];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
  for (i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

}  // namespace curvq::internal
