// The zeros of a checkpoint's matrices, and what layouts that leave them out would take.
#pragma once

#include "curvq/eval/stored_tensors.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// Reads every 2-D weight; adds "sparsity" to the results and a table to the text.
void report_sparsity(const StoredTensors& tensors, Output& output);

}  // namespace curvq::cli
