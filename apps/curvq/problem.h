// Problems (a model, a loss, data) named on the command line.
#pragma once

#include "curvq/curvature/problem.h"
#include "options.h"
#include "output.h"

namespace curvq::cli {

// Declares --data, --loss, --dtype, --num-samples, --max-length, --chunk-size, --checkpoint.
void add_problem_options(Options& options);

// The samples of a model directory: windows of --data and their next tokens, or its x and y;
// describes both in output.inputs().
Batch load_tokens(const DecoderModel& model, const Options& options, Output& output);

// MODEL (a model directory or a TorchScript .pt) with --data; describes both in output.inputs().
Problem load_problem(const std::string& model, const Options& options, ProblemOptions problem,
                     Output& output);

}  // namespace curvq::cli
