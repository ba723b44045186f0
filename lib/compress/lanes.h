// Loops over the rows of a strip: arrays [column][row] whose rows are independent problems.
#pragma once

#include <cstdint>

namespace curvq::internal {

// Rows of a strip; fixed so that results are.
inline constexpr int64_t kStrip = 64;

// y[i] -= a x[i].
void subtract_scaled(float* y, float a, const float* x, int64_t n);
// y[i] -= a[k] x[k][i] for k = 0 .. count - 1 in turn; x [count][kStrip], y [kStrip].
void subtract_product(float* y, const float* a, int64_t count, const float* x);
// error[i] = (w[i] - rounded[i]) * inverse.
void scaled_error(float* error, const float* w, const float* rounded, float inverse, int64_t n);
// sum[i] += x[i]^2.
void add_squares(float* sum, const float* x, int64_t n);

}  // namespace curvq::internal
