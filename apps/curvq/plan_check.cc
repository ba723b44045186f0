#include "plan_check.h"

#include <algorithm>
#include <memory>

#include "curvq/nn/decoder.h"

namespace curvq::cli {
namespace {

bool same_formats(const BitPlan& a, const BitPlan& b) {
  for (size_t i = 0; i < a.layers.size(); ++i) {
    if (a.layers[i].scheme != b.layers[i].scheme) return false;
  }
  return true;
}

SchemeAssignment assignment_of(const CostReport& costs, const BitPlan& plan) {
  SchemeAssignment assignment{"the plan", {}};
  for (size_t i = 0; i < costs.layers.size(); ++i)
    assignment.schemes[costs.layers[i].name] = plan.layers[i].scheme;
  for (const PlannedLayer& layer : costs.kept) assignment.schemes[layer.name] = std::nullopt;
  return assignment;
}

}  // namespace

std::vector<ComparedPlan> uniform_plans(const std::vector<LayerCosts>& layers,
                                        const std::vector<std::optional<Scheme>>& formats,
                                        const BitPlan& plan) {
  std::vector<ComparedPlan> plans;
  for (const std::optional<Scheme>& format : formats) {
    if (!format) continue;
    if (auto uniform = uniform_plan(layers, format, plan))
      plans.push_back({"uniform " + rule_text(format), std::move(*uniform), {}});
  }
  std::stable_sort(plans.begin(), plans.end(), [](const ComparedPlan& a, const ComparedPlan& b) {
    return a.plan.bytes < b.plan.bytes;
  });
  return plans;
}

std::vector<ComparedPlan> plans_to_measure(const BitPlan& plan, int64_t bytes,
                                           const std::vector<ComparedPlan>& uniform) {
  std::vector<ComparedPlan> plans = {{"plan", plan, {}}};
  const ComparedPlan *within = nullptr, *above = nullptr;
  for (const ComparedPlan& one : uniform) {  // by bytes
    if (one.plan.bytes <= bytes && (!within || one.plan.predicted < within->plan.predicted))
      within = &one;
    if (one.plan.bytes < plan.bytes) continue;
    if (!above ||
        (one.plan.bytes == above->plan.bytes && one.plan.predicted < above->plan.predicted))
      above = &one;
  }
  for (const ComparedPlan* one : {within, above}) {
    if (one == nullptr || same_formats(one->plan, plan)) continue;
    if (one->name != plans.back().name) plans.push_back(*one);
  }
  return plans;
}

void measure_plans(const std::string& model, const CostReport& costs,
                   const TokenWindows* calibration, const std::string& stats,
                   const QuantizeOptions& rounding, const TokenWindows& judges,
                   const std::string& scratch, std::vector<ComparedPlan>& plans) {
  std::vector<std::unique_ptr<DecoderModel>> models;
  std::vector<const DecoderModel*> pointers;
  std::vector<ComparedPlan*> measured;
  for (ComparedPlan& one : plans) {
    QuantizeOptions options = rounding;
    options.plan = PlanOptions();
    options.plan.assignment = assignment_of(costs, one.plan);
    std::string directory = model;  // a plan may keep everything
    if (std::any_of(one.plan.layers.begin(), one.plan.layers.end(),
                    [](const FormatCost& cost) { return cost.scheme.has_value(); })) {
      directory = options.out = scratch + "/" + std::to_string(models.size());
      quantize_model(
          model, calibration, options, [](const auto&) { return "{}\n"; }, stats);
    }
    models.push_back(std::make_unique<DecoderModel>(directory, Engine::kDequantized));
    pointers.push_back(models.back().get());
    measured.push_back(&one);
  }
  const DecoderModel original(model, Engine::kDequantized);
  const std::vector<EvalResult> results = evaluate(pointers, judges, &original);
  for (size_t i = 0; i < results.size(); ++i) measured[i]->measured = results[i];
}

size_t best_measured(const std::vector<ComparedPlan>& plans, int64_t bytes) {
  size_t best = 0;
  for (size_t i = 1; i < plans.size(); ++i) {
    if (plans[i].plan.bytes <= bytes && plans[i].measured->kl_mean < plans[best].measured->kl_mean)
      best = i;
  }
  return best;
}

}  // namespace curvq::cli
