// `curvq eval` of a TorchScript file.
#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

// Loss and accuracy on x and y of --data, and, with --reference, how far the outputs are from
// those of another TorchScript file; returns the exit status.
int eval_script(const Options& options, Output& output);

}  // namespace curvq::cli
