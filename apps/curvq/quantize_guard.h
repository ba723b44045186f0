// A checkpoint that must not be worse than the plain ones.
#pragma once

#include <string>
#include <vector>

#include "curvq/compress/quantize.h"
#include "curvq/eval/evaluate.h"

namespace curvq::cli {

// One way of rounding the model and what held-out windows say of it.
struct GuardedCandidate {
  std::string name;  // "as asked", "plain gptq", "round to nearest"
  EvalResult result;
  std::string failure;  // why there is no result; empty if there is one
};

struct Guard {
  std::vector<GuardedCandidate> candidates;  // what was asked for first
  size_t kept = 0;
};

// quantize_model(), then the same with plain GPTQ (no search, sweeps, gradients or corrections, the
// same windows seen) and with rounding to nearest; the checkpoint with the least KL from the
// original on the windows that options.held_out keeps out is the one that is written.
//   write_report  as for quantize_model(), and told what the guard found
// Returns the report of the one that is kept. Throws as quantize_model() does for what was asked
// for; UsageError if no window is held out.
using GuardedReportWriter = std::function<std::string(const QuantizeReport&, const Guard&)>;
QuantizeReport quantize_guarded(const std::string& model, const TokenWindows& calibration,
                                const QuantizeOptions& options,
                                const GuardedReportWriter& write_report, Guard& guard);

}  // namespace curvq::cli
