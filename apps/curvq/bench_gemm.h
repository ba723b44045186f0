// curvq bench gemm: products with packed weights beside what the machine can do.
#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

void declare_bench_gemm(Options& options);
int run_bench_gemm(const Options& options, Output& output);

}  // namespace curvq::cli
