// curvq bench gemm: products with packed weights beside what the machine can do.
#pragma once

#include <vector>

#include "curvq/kernels/gemm_bench.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

void declare_bench_gemm(Options& options);
int run_bench_gemm(const Options& options, Output& output);

// --shapes, empty if there are none, and --formats. Throw UsageError naming the one that is wrong.
std::vector<GemmShape> gemm_shapes(const Options& options);
std::vector<Scheme> gemm_formats(const Options& options);
OrderedJson limits_json(const MachineLimits& limits);

}  // namespace curvq::cli
