// What quantize and prune share: calibration data, and what Hessians are made of.
#pragma once

#include <string>

#include "curvq/compress/capture.h"
#include "options.h"

namespace curvq::cli {

// Declares --calibration, --num-samples, --max-length, --capture, --activations and --damping.
void add_calibration_options(Options& options);
// Declares --token-weights, --input-correction and --residual-correction.
void add_correction_options(Options& options);

// The values of both, where `--preset best` gives defaults: token weights for a model directory
// (`follows_layers`), corrections where it is captured sequentially for a method that
// `uses_hessians`.
CaptureOptions read_capture(const Options& options, bool follows_layers, bool uses_hessians);

// "float32", "int16", "int8".
std::string activations_name(Activations activations);

}  // namespace curvq::cli
