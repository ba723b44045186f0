// `curvq eval` of an encoder.
#pragma once

#include "options.h"
#include "output.h"

namespace curvq::cli {

// Sentence embeddings: compared with those of --reference, written to --embeddings. Returns the
// exit status.
int eval_encoder(const Options& options, Output& output);

}  // namespace curvq::cli
