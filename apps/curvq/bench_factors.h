#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

// `curvq bench factors`: the factors A of a model directory's layers beside the forward pass alone.
int bench_factors(const Options& options, Output& output);

}  // namespace curvq::cli
