// The statistics of `curvq hessian`: computed, put into the JSON, printed.
#pragma once

#include <string>
#include <vector>

#include "curvq/curvature/curvature_operator.h"
#include "curvq/curvature/layer_curvature.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// Throws UsageError, before anything is computed, for options that do not fit the problem.
void check_statistics(const Problem& problem, const std::vector<std::string>& what,
                      const Options& options);

// What they say of each row of the table; a diagonal is a stretch of the parameter vector.
std::vector<LayerCurvature> compute_statistics(LinearOperator& op,
                                               const std::vector<std::string>& what,
                                               const Options& options, Output& output);

}  // namespace curvq::cli
