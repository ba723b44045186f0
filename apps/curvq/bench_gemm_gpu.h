#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

// `curvq bench gemm --model-gpu`: bounds of the CUDA kernels on GPUs that are not here, for
// --shapes and --formats where these are declared and given, else for a layer of a 70B model.
int bench_gemm_gpu(const Options& options, Output& output);

}  // namespace curvq::cli
