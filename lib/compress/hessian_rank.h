// Hessians of fewer calibration tokens than a layer has inputs.
#pragma once

#include <cstdint>

namespace curvq::internal {

// The rank of a [n, n] sum of x x^T, symmetric and finite, by Cholesky factorisation with pivots of
// the matrix scaled to a unit diagonal; what is below n 2^-23 of it may be rounding of a float32
// sum. Of inputs that are not always zero; all of these where it is more than three quarters.
int64_t live_rank(const float* h, int64_t n);

// How far a covariance of so few samples should be drawn towards the identity: rho / (1 - rho),
// with which H + damping mean(diag H) I is (1 - rho) H + rho mean(diag H) I up to a factor, rho the
// oracle-approximating shrinkage (Chen, Wiesel, Eldar and Hero 2010, eq. 23). At most 0.9: beyond,
// nothing was gained.
//   h  [n, n] float32, symmetric, finite; zero rows (inputs that are always zero) do not count
double shrinkage_damping(const float* h, int64_t n, int64_t samples);

}  // namespace curvq::internal
