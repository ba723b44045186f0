// Samples in a .safetensors: `x` and `y`.
#pragma once

#include "curvq/curvature/model.h"
#include "curvq/io/safetensors.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// The first --num-samples of `x`, integers as int64. Throws FormatError if there is none or it has
// no sample, UsageError if there are not so many.
torch::Tensor load_x(const SafetensorsFile& file, const Options& options);
// The same of `x` and `y`.
Batch load_xy(const SafetensorsFile& file, const Options& options);

// The file that `option` names. Throws UnsupportedError for what is no .safetensors: text needs a
// model directory.
SafetensorsFile open_samples(const Options& options, const std::string& option);

// {"path", "hash", "samples"} for the "inputs" of the JSON.
OrderedJson describe(const SafetensorsFile& file, int64_t samples);

}  // namespace curvq::cli
