// The inverse Hessian of a layer straight from its inputs.
#pragma once

#include <cstdint>
#include <vector>

namespace curvq::internal {

// (2/N sum x x^T + damping mean(live diag) I)^-1, [n, n], by one Sherman-Morrison update an input
// (inverse_hessian() with rank 1).
//   inputs  [count, n] float32, finite
//   mean    of the live diagonal of 2/N sum x x^T
std::vector<double> sherman_morrison_inverse(const float* inputs, int64_t count, int64_t n,
                                             double damping, double mean);

}  // namespace curvq::internal
