// The results of planning, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "curvq/compress/plan.h"
#include "curvq/io/json.h"
#include "plan_check.h"

namespace curvq::cli {

struct PlanResults {
  CostReport costs;
  int64_t budget = 0;  // bytes of the planned layers
  PlanRule rule = PlanRule::kKronecker;
  std::vector<ComparedPlan> compared;  // the plan first; `measured` is set if `judges` > 0
  int64_t judges = 0;                  // windows that KL was measured on
  size_t chosen = 0;                   // of `compared`, what is written
  std::vector<ComparedPlan> uniform;   // by bytes
  std::vector<BitPlan> frontier;       // by bytes, each the best of its budget
};

// The best plans of budgets between the smallest formats and the largest, evenly spread.
std::vector<BitPlan> plan_frontier(const std::vector<LayerCosts>& layers, PlanRule rule);

OrderedJson plan_results_json(const PlanResults& results);
std::string plan_results_text(const PlanResults& results, bool color);
// One line that says whether the plan was worth it; empty if nothing was measured.
std::string plan_verdict(const PlanResults& results);

// A page out of the command's JSON document.
std::string plan_page(const OrderedJson& document);

}  // namespace curvq::cli
