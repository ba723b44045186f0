// A check of Hessian products that shares no code with them.
#pragma once

#include "curvq/curvature/problem.h"

namespace curvq {

// |d - hv| / |hv| for the central difference d = (g(theta + h v) - g(theta - h v)) / 2h of
// gradients,
//   v, hv  [dimension]; hv is taken to be H v
// with h |v| = epsilon^(1/3) (1 + |theta|), where truncation and rounding errors meet: good to
// about epsilon^(2/3) for a well-scaled problem, worse where third derivatives are large. The
// parameters are moved and put back exactly.
double finite_difference_error(const Problem& problem, const torch::Tensor& v,
                               const torch::Tensor& hv);

}  // namespace curvq
