#include "plan_report.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"
#include "quantize_report.h"

namespace curvq::cli {
namespace {

constexpr int kFrontierPlans = 24;

const char* rule_name(PlanRule rule) {
  switch (rule) {
    case PlanRule::kKronecker:
      return "kronecker";
    case PlanRule::kTrace:
      return "trace";
    case PlanRule::kHawq:
      break;
  }
  return "hawq";
}

OrderedJson cost_json(const FormatCost& cost, const LayerCosts& layer) {
  return {{"scheme", rule_text(cost.scheme)},
          {"bits", 8.0 * cost.bytes / static_cast<double>(layer.rows * layer.cols)},
          {"bytes", cost.bytes},
          {"relative_error", cost.relative_error},
          {"predicted_kl", cost.kronecker},
          {"trace_kl", cost.trace},
          {"hawq_kl", cost.hawq}};
}

OrderedJson totals_json(const BitPlan& plan, int64_t other_bytes) {
  return {{"bits", plan.bits()},
          {"bytes", plan.bytes},
          {"checkpoint_bytes", plan.tensor_bytes + other_bytes},
          {"predicted_kl", plan.predicted}};
}

OrderedJson compared_json(const ComparedPlan& one, int64_t other_bytes) {
  OrderedJson json = {{"name", one.name}};
  json.update(totals_json(one.plan, other_bytes));
  if (one.measured) {
    json["measured_kl"] = one.measured->kl_mean;
    json["measured_kl_stderr"] = one.measured->kl_stderr;
    json["top1_agreement"] = one.measured->top1_agreement;
  }
  return json;
}

// Kronecker predictions, whatever the plan was made by.
double kronecker_sum(const BitPlan& plan) {
  double sum = 0;
  for (const FormatCost& cost : plan.layers) sum += cost.kronecker;
  return sum;
}

}  // namespace

std::vector<BitPlan> plan_frontier(const std::vector<LayerCosts>& layers, PlanRule rule) {
  int64_t least = 0, most = 0;
  for (const LayerCosts& layer : layers) {
    const auto [low, high] = std::minmax_element(
        layer.choices.begin(), layer.choices.end(),
        [](const FormatCost& a, const FormatCost& b) { return a.bytes < b.bytes; });
    least += low->bytes;
    most += high->bytes;
  }
  // Above nine bits nothing is lost that could be seen.
  most = std::min(most, std::max(least, budget_of_bits(layers, 9)));
  std::vector<BitPlan> plans;
  for (int i = 0; i < kFrontierPlans; ++i) {
    const int64_t bytes = least + (most - least) * i / (kFrontierPlans - 1);
    try {
      BitPlan plan = solve_plan(layers, bytes, rule);
      if (plans.empty() || plan.bytes > plans.back().bytes) plans.push_back(std::move(plan));
    } catch (const UsageError&) {
      // fused layers have fewer formats in common than each has alone
    }
  }
  return plans;
}

OrderedJson plan_results_json(const PlanResults& results) {
  const CostReport& costs = results.costs;
  const BitPlan& plan = results.compared[results.chosen].plan;
  OrderedJson json = {{"rule", rule_name(results.rule)}, {"budget_bytes", results.budget}};
  json["plan"] = compared_json(results.compared[results.chosen], costs.other_bytes);
  json["relaxation_kl"] = results.compared.front().plan.relaxation;
  json["compared"] = OrderedJson::array();
  for (const ComparedPlan& one : results.compared)
    json["compared"].push_back(compared_json(one, costs.other_bytes));
  json["measured_windows"] = results.judges;
  json["verdict"] = plan_verdict(results);
  json["layers"] = OrderedJson::array();
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    const LayerCosts& layer = costs.layers[i];
    OrderedJson row = {{"name", layer.name}, {"shape", {layer.rows, layer.cols}}};
    row.update(cost_json(plan.layers[i], layer));
    row["choices"] = OrderedJson::array();
    for (const FormatCost& cost : layer.choices) row["choices"].push_back(cost_json(cost, layer));
    json["layers"].push_back(std::move(row));
  }
  json["kept"] = kept_json(costs.kept);
  json["uniform"] = OrderedJson::array();
  for (const ComparedPlan& one : results.uniform)
    json["uniform"].push_back(compared_json(one, costs.other_bytes));
  json["frontier"] = OrderedJson::array();
  for (const BitPlan& one : results.frontier) {
    json["frontier"].push_back(totals_json(one, costs.other_bytes));
    json["frontier"].back()["predicted_kl"] = kronecker_sum(one);
  }
  json["other_bytes"] = costs.other_bytes;
  json["factor_tokens"] = costs.factor_tokens;
  json["seconds"] = costs.seconds;
  return json;
}

std::string plan_verdict(const PlanResults& results) {
  if (results.judges == 0) return "";
  const ComparedPlan& plan = results.compared.front();
  const ComparedPlan& best = results.compared[results.chosen];
  if (results.chosen > 0) {
    return format(
        "%s is better than the plan at no more bytes than allowed: KL %s, the plan's %s; it is "
        "what is written",
        best.name.c_str(), number_text(best.measured->kl_mean, 3).c_str(),
        number_text(plan.measured->kl_mean, 3).c_str());
  }
  for (const ComparedPlan& one : results.compared) {
    if (one.measured->kl_mean < plan.measured->kl_mean && one.plan.bytes <= plan.plan.bytes * 1.01)
      return format("%s, at %.2f %% more bytes than the plan, is better: KL %s, the plan's %s",
                    one.name.c_str(), 100.0 * one.plan.bytes / plan.plan.bytes - 100,
                    number_text(one.measured->kl_mean, 3).c_str(),
                    number_text(plan.measured->kl_mean, 3).c_str());
  }
  return results.compared.size() == 1 ? "the plan is the uniform one"
                                      : "no uniform plan of as many bytes is better than the plan";
}

std::string plan_results_text(const PlanResults& results, bool color) {
  using Align = Table::Align;
  const CostReport& costs = results.costs;
  const BitPlan& plan = results.compared[results.chosen].plan;
  Table table({{"layer"},
               {"shape", Align::kRight},
               {"scheme"},
               {"bits", Align::kRight},
               {"error", Align::kRight},
               {"predicted KL", Align::kRight},
               {"trace x error", Align::kRight},
               {"HAWQ", Align::kRight}});
  double trace = 0, hawq = 0;
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    const LayerCosts& layer = costs.layers[i];
    const FormatCost& cost = plan.layers[i];
    table.add_row({layer.name,
                   format("%lld x %lld", static_cast<long long>(layer.rows),
                          static_cast<long long>(layer.cols)),
                   rule_text(cost.scheme),
                   format("%.3f", 8.0 * cost.bytes / (layer.rows * layer.cols)),
                   number_text(cost.relative_error, 3), number_text(cost.kronecker, 3),
                   number_text(cost.trace, 3), number_text(cost.hawq, 3)});
    trace += cost.trace;
    hawq += cost.hawq;
  }
  table.add_rule();
  table.add_row({"all", "", "", format("%.3f", plan.bits()), "",
                 number_text(kronecker_sum(plan), 3), number_text(trace, 3), number_text(hawq, 3)});
  std::string out = table.str(color);
  for (const PlannedLayer& layer : costs.kept)
    out += "kept " + layer.name + ": " + layer.reason + "\n";

  Table compared({{"plan"},
                  {"bits", Align::kRight},
                  {"layers", Align::kRight},
                  {"checkpoint", Align::kRight},
                  {"predicted KL", Align::kRight},
                  {"measured KL", Align::kRight},
                  {"std. error", Align::kRight}});
  for (const ComparedPlan& one : results.compared) {
    compared.add_row({one.name, format("%.3f", one.plan.bits()), bytes_text(one.plan.bytes),
                      bytes_text(one.plan.tensor_bytes + costs.other_bytes),
                      number_text(kronecker_sum(one.plan), 3),
                      one.measured ? number_text(one.measured->kl_mean, 3) : "",
                      one.measured ? number_text(one.measured->kl_stderr, 2) : ""});
  }
  out += "\n" + compared.str(color);
  const std::string verdict = plan_verdict(results);
  if (verdict.empty()) {
    out += "not measured: there are no tokens for it (--calibration with --held-out, or --data)\n";
  } else {
    out += format("measured on %lld windows; ", static_cast<long long>(results.judges)) + verdict +
           "\n";
  }
  return out;
}

}  // namespace curvq::cli
