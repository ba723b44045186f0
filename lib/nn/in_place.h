// Passes over activations that autograd need not see, in one go.
#pragma once

#include <cstdint>

namespace curvq::internal {

// The first rope_dim elements x = (a, b) of each head of a token become x cos + (-b, a) sin.
//   x [heads, head_dim], cos, sin [rope_dim]; rope_dim even
void rotate_heads(float* x, int64_t heads, int64_t head_dim, int64_t rope_dim, const float* cos,
                  const float* sin);

// out = x / sqrt(mean(x^2) + epsilon) * weight; the sum of squares in a fixed order.
void rms_norm_row(const float* x, int64_t n, const float* weight, float epsilon, float* out);

}  // namespace curvq::internal
