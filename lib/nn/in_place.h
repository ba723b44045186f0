// Passes over activations that autograd need not see, in one go.
#pragma once

#include <cstdint>

namespace curvq::internal {

// Each head x = (a, b) of a token becomes x cos + (-b, a) sin.
//   x [heads, head_dim], cos, sin [head_dim]; head_dim even
void rotate_heads(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin);

// out = x / sqrt(mean(x^2) + epsilon) * weight; the sum of squares in a fixed order.
void rms_norm_row(const float* x, int64_t n, const float* weight, float epsilon, float* out);

}  // namespace curvq::internal
