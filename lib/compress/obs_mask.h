// SparseGPT's pass over the columns.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/compress/prune.h"

namespace curvq::internal {

// kObs of prune(): mask and updated weights with the factor `upper` [cols, cols] of the damped
// inverse Hessian. Columns whose diagonal of H is zero go first.
PrunedMatrix prune_by_elimination(const PruneProblem& problem, const std::vector<float>& upper,
                                  const SparsityPattern& pattern, int64_t block_size);

}  // namespace curvq::internal
