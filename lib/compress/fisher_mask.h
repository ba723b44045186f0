// Pruning with blocks of the inverse Fisher matrix.
#pragma once

#include "curvq/compress/prune.h"

namespace curvq::internal {

// kWoodFisher of prune(). Blocks of the Fisher matrix are 64 consecutive weights of a row, or fewer
// at its end; damping is a share of the mean of its diagonal. Throws NumericalError for gradients
// that are not finite.
PrunedMatrix prune_by_fisher_blocks(const PruneProblem& problem, const PruneOptions& options);

}  // namespace curvq::internal
