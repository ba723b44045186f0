// What plans make of the model, measured.
#pragma once

#include <string>
#include <vector>

#include "curvq/compress/plan.h"
#include "curvq/eval/evaluate.h"

namespace curvq::cli {

// The plan and what it is seen beside.
struct ComparedPlan {
  std::string name;  // "plan", "uniform nvfp4"
  BitPlan plan;
  std::optional<EvalResult> measured;
};

// The uniform plans, by bytes: every format that some layer can have, the other layers as in
// `plan`.
std::vector<ComparedPlan> uniform_plans(const std::vector<LayerCosts>& layers,
                                        const std::vector<std::optional<Scheme>>& formats,
                                        const BitPlan& plan);

// The plan itself, the best predicted uniform one within `bytes`, and the smallest that is not
// smaller than the plan; those that are the plan itself are left out.
std::vector<ComparedPlan> plans_to_measure(const BitPlan& plan, int64_t bytes,
                                           const std::vector<ComparedPlan>& uniform);

// Quantizes the model by each of `plans` in directories below `scratch`, and sets `measured` from
// the windows `judges`.
//   calibration  for `rounding`, null where it needs none
void measure_plans(const std::string& model, const CostReport& costs,
                   const TokenWindows* calibration, const std::string& stats,
                   const QuantizeOptions& rounding, const TokenWindows& judges,
                   const std::string& scratch, std::vector<ComparedPlan>& plans);

// The least measured KL among plans within `bytes`.
size_t best_measured(const std::vector<ComparedPlan>& plans, int64_t bytes);

}  // namespace curvq::cli
