// What curvature costs: `curvq bench hvp`, `eigen` and `trace`.
#pragma once

#include "curvq/curvature/problem.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// A product with the Hessian beside a gradient and a forward pass, and the memory they take.
int bench_hvp(const Problem& problem, const Options& options, Output& output);
// The largest eigenvalue to --tol, and the trace from --probes random vectors, each from a new
// operator: the first product makes the graph.
int bench_eigen(const Problem& problem, const Options& options, Output& output);
int bench_trace(const Problem& problem, const Options& options, Output& output);

}  // namespace curvq::cli
