#pragma once

#include "curvq/compress/run_state.h"
#include "curvq/io/json.h"
#include "options.h"

namespace curvq::cli {

// --state and --resume. The settings are the version, the other options but those that have no part
// in the result, and of the command's inputs (Output::inputs()) the hashes: a file may have moved.
StateOptions read_state(const Options& options, const OrderedJson& inputs);

}  // namespace curvq::cli
