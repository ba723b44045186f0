#include "curvq/compress/plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compress/knapsack.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {
namespace {

bool same_format(const std::optional<Scheme>& a, const std::optional<Scheme>& b) {
  return rule_text(a) == rule_text(b);
}

// Layers that loaders fuse: indices, in the order of their first.
std::vector<std::vector<size_t>> fused_groups(const std::vector<LayerCosts>& layers) {
  std::vector<std::vector<size_t>> groups;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto [it, is_new] = known.emplace(layers[i].fused, groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(i);
  }
  return groups;
}

// The formats that all layers of a group can have.
std::vector<std::optional<Scheme>> common_formats(const std::vector<LayerCosts>& layers,
                                                  const std::vector<size_t>& group) {
  std::vector<std::optional<Scheme>> formats;
  for (const FormatCost& choice : layers[group.front()].choices) {
    if (std::all_of(group.begin(), group.end(),
                    [&](size_t i) { return layers[i].find(choice.scheme) != nullptr; }))
      formats.push_back(choice.scheme);
  }
  if (formats.empty())
    throw UsageError(layers[group.front()].name +
                     " and the layers that loaders fuse with it have no format in common; let "
                     "them be kept (--format keep)");
  return formats;
}

void add_up(const std::vector<LayerCosts>& layers, PlanRule rule, BitPlan& plan) {
  for (size_t i = 0; i < layers.size(); ++i) {
    plan.bytes += plan.layers[i].bytes;
    plan.tensor_bytes += plan.layers[i].tensor_bytes;
    plan.weights += layers[i].rows * layers[i].cols;
    plan.predicted += predicted(plan.layers[i], rule);
  }
}

[[noreturn]] void throw_bad_plan(const std::string& path, const std::string& what) {
  throw FormatError(path + ": " + what +
                    "; curvq plan writes plans, and include/curvq/compress/plan.h describes them");
}

}  // namespace

const FormatCost* LayerCosts::find(const std::optional<Scheme>& scheme) const {
  for (const FormatCost& choice : choices) {
    if (same_format(choice.scheme, scheme)) return &choice;
  }
  return nullptr;
}

double predicted(const FormatCost& cost, PlanRule rule) {
  switch (rule) {
    case PlanRule::kKronecker:
      return cost.kronecker;
    case PlanRule::kTrace:
      return cost.trace;
    case PlanRule::kHawq:
      break;
  }
  return cost.hawq;
}

BitPlan solve_plan(const std::vector<LayerCosts>& layers, int64_t bytes, PlanRule rule) {
  const auto groups = fused_groups(layers);
  std::vector<std::vector<std::optional<Scheme>>> formats;
  std::vector<std::vector<internal::KnapsackItem>> items;
  int64_t least = 0;
  for (const auto& group : groups) {
    formats.push_back(common_formats(layers, group));
    items.emplace_back();
    int64_t lightest = INT64_MAX;
    for (const auto& format : formats.back()) {
      internal::KnapsackItem item;
      for (size_t i : group) {
        const FormatCost& cost = *layers[i].find(format);
        item.weight += cost.bytes;
        item.cost += predicted(cost, rule);
      }
      lightest = std::min(lightest, item.weight);
      items.back().push_back(item);
    }
    least += lightest;
  }
  const internal::KnapsackSolution solution = internal::solve_knapsack(items, bytes);
  BitPlan plan;
  if (solution.choice.size() != groups.size()) {
    for (const LayerCosts& layer : layers) plan.weights += layer.rows * layer.cols;
    throw UsageError(format(
        "the smallest formats of %zu layers take %lld bytes, %.3f bits a weight; only %lld are "
        "allowed, %.3f bits",
        layers.size(), static_cast<long long>(least), 8.0 * least / plan.weights,
        static_cast<long long>(bytes), 8.0 * bytes / plan.weights));
  }
  plan.layers.resize(layers.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i : groups[g]) plan.layers[i] = *layers[i].find(formats[g][solution.choice[g]]);
  }
  add_up(layers, rule, plan);
  plan.relaxation = solution.relaxation;
  return plan;
}

int64_t budget_of_bits(const std::vector<LayerCosts>& layers, double bits) {
  constexpr int64_t kTensorScaleBytes = 4;
  int64_t weights = 0;
  for (const LayerCosts& layer : layers) weights += layer.rows * layer.cols;
  return static_cast<int64_t>(std::floor(bits * static_cast<double>(weights) / 8)) +
         kTensorScaleBytes * static_cast<int64_t>(layers.size());
}

int64_t budget_of_tensors(const std::vector<LayerCosts>& layers, int64_t tensor_bytes) {
  for (const LayerCosts& layer : layers) {
    int64_t most = 0;
    for (const FormatCost& cost : layer.choices)
      most = std::max(most, cost.tensor_bytes - cost.bytes);
    tensor_bytes -= most;
  }
  return tensor_bytes;
}

std::optional<BitPlan> uniform_plan(const std::vector<LayerCosts>& layers,
                                    const std::optional<Scheme>& format, const BitPlan& like) {
  BitPlan plan = like;
  bool any = false;
  for (const auto& group : fused_groups(layers)) {
    if (!std::all_of(group.begin(), group.end(),
                     [&](size_t i) { return layers[i].find(format) != nullptr; }))
      continue;
    for (size_t i : group) plan.layers[i] = *layers[i].find(format);
    any = true;
  }
  if (!any) return std::nullopt;
  plan.bytes = plan.tensor_bytes = plan.weights = 0;
  plan.predicted = plan.relaxation = 0;
  add_up(layers, PlanRule::kKronecker, plan);
  return plan;
}

OrderedJson plan_json(const std::vector<LayerCosts>& layers, const std::vector<PlannedLayer>& kept,
                      const BitPlan& plan, const std::string& model_hash) {
  OrderedJson json = {{"schema_version", 1},
                      {"kind", "curvq plan"},
                      {"model_hash", model_hash},
                      {"bits", plan.bits()},
                      {"bytes", plan.bytes},
                      {"predicted_kl", plan.predicted},
                      {"layers", OrderedJson::object()}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const FormatCost& cost = plan.layers[i];
    json["layers"][layers[i].name] = {
        {"scheme", rule_text(cost.scheme)},
        {"bits", 8.0 * cost.bytes / static_cast<double>(layers[i].rows * layers[i].cols)},
        {"predicted_kl", cost.kronecker}};
  }
  for (const PlannedLayer& layer : kept) json["layers"][layer.name] = {{"scheme", "keep"}};
  return json;
}

SchemeAssignment read_plan(const std::string& path, const std::string& model_hash) {
  const Json json = read_json_file(path);
  if (!json.is_object() || json_string(json, "kind", "", path) != "curvq plan")
    throw_bad_plan(path, "this is no plan: \"kind\" is not \"curvq plan\"");
  if (json_int(json, "schema_version", path) != 1)
    throw_bad_plan(path, "schema_version is " +
                             std::to_string(json_int(json, "schema_version", path)) +
                             ", this curvq reads 1");
  const std::string hash = json_string(json, "model_hash", "", path);
  if (!hash.empty() && !model_hash.empty() && hash != model_hash) {
    throw FormatError(path + ": the plan is for the model with hash " + hash + ", this one has " +
                      model_hash + "; make a new plan, or take model_hash out of this one");
  }
  if (!json.contains("layers") || !json["layers"].is_object())
    throw_bad_plan(path, "there is no object \"layers\"");
  SchemeAssignment assignment{path, {}};
  std::map<std::string, std::string> of_group;  // a layer for each fused key
  for (const auto& [name, entry] : json["layers"].items()) {
    if (!entry.is_object() || !entry.contains("scheme") || !entry["scheme"].is_string())
      throw_bad_plan(path, "the entry " + name + " has no text \"scheme\"");
    const std::string text = entry["scheme"].get<std::string>();
    try {
      assignment.schemes[name] = parse_rule_text(text);
    } catch (const UsageError& error) {
      throw FormatError(path + ": the entry " + name + ": " + error.what());
    }
    const auto [known, is_new] = of_group.emplace(fused_group_key(name), name);
    if (is_new) continue;
    const auto& other = assignment.schemes.at(known->second);
    if (!same_format(other, assignment.schemes.at(name)))
      throw FormatError(path + ": the entry " + name + " is \"" + text + "\" and " + known->second +
                        ", which loaders fuse with it, \"" + rule_text(other) +
                        "\"; give both the same scheme");
  }
  return assignment;
}

}  // namespace curvq
