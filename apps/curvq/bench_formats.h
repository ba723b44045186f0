// curvq bench formats: how fast whole matrices are quantized and dequantized.
#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

int bench_formats(const Options& options, Output& output);

}  // namespace curvq::cli
