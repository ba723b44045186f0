// K-FAC factors in `curvq hessian`: options, the work, JSON and table.
#pragma once

#include <functional>

#include "curvq/curvature/kfac.h"
#include "hessian_processes.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// Declares --label-draws, --weight-sharing, --damping.
void add_kfac_options(Options& options);
// --exact and --operator decide on the labels too.
KfacOptions kfac_options(const Options& options);
// "sampled", "exact" or "data".
std::string labels_name(KfacLabels labels);

// The factors of a problem's layers, or of a decoder's that --parameters and --ignore choose; adds
// `kfac` and rows of `layers` to the results, which tell of the samples already, and prints a
// table. `problem` and `tokens` are what this process has of the data; `sink` gets each layer's
// factors, of all data.
void compute_kfac(const Problem& problem, const Options& options, const Processes& processes,
                  Output& output, const LayerFactorsSink& sink);
void compute_kfac(const DecoderModel& model, const Batch& tokens, const Options& options,
                  const Processes& processes, Output& output, const LayerFactorsSink& sink);

// Layers of the decoder whose weight the patterns choose. Throws UsageError for a pattern that
// matches none and if none is left.
std::vector<LinearInfo> chosen_layers(const DecoderModel& model, const Options& options);

}  // namespace curvq::cli
