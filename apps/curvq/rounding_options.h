// How layers are rounded: the options that everything shares that rounds.
#pragma once

#include "curvq/compress/quantize.h"
#include "options.h"

namespace curvq::cli {

// Declares --method, --preset and what they stand for, --calibration, --stats, --held-out.
void add_rounding_options(Options& options);
// Everything of QuantizeOptions that these options decide. `bare`: there is no model whose layers
// could be followed; `stats`: statistics stand for calibration data.
QuantizeOptions read_rounding(const Options& options, bool bare, bool stats);

}  // namespace curvq::cli
