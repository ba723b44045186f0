#include "compress/layer_result_json.h"

#include <cmath>

namespace curvq::internal {
namespace {

// JSON has no NaN; null stands for it.
OrderedJson number(double value) { return std::isnan(value) ? OrderedJson() : OrderedJson(value); }

double number(const OrderedJson& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

// The one list of fields of each, for both ways.
template <typename Visit, typename Layer>
void visit_pruned(Layer& r, const Visit& visit) {
  visit("name", r.name);
  visit("pattern", r.pattern);
  visit("rows", r.rows);
  visit("cols", r.cols);
  visit("sparsity", r.sparsity);
  visit("relative_error", r.relative_error);
  visit("magnitude_relative_error", r.magnitude_relative_error);
  visit("damping", r.damping);
  visit("dead_inputs", r.dead_inputs);
  visit("seconds", r.seconds);
  visit("note", r.note);
}

template <typename Visit, typename Layer>
void visit_quantized(Layer& r, const Visit& visit) {
  visit("name", r.name);
  visit("scheme", r.scheme);
  visit("rows", r.rows);
  visit("cols", r.cols);
  visit("bits_per_weight", r.bits_per_weight);
  visit("relative_error", r.relative_error);
  visit("rtn_relative_error", r.rtn_relative_error);
  visit("sparsity", r.sparsity);
  visit("pruned_relative_error", r.pruned_relative_error);
  visit("damping", r.damping);
  visit("plane_error", r.plane_error);
  visit("plane_bound", r.plane_bound);
  visit("dead_inputs", r.dead_inputs);
  visit("rounded_to_nearest", r.rounded_to_nearest);
  visit("held_out", r.held_out);
  visit("steps", r.steps);
  visit("shrinkage", r.shrinkage);
  visit("seconds", r.seconds);
  visit("note", r.note);
}

struct Write {
  OrderedJson& json;

  template <typename T>
  void operator()(const char* key, const T& value) const {
    json[key] = value;
  }
  void operator()(const char* key, double value) const { json[key] = number(value); }
  void operator()(const char* key, const std::optional<double>& value) const {
    if (value) json[key] = number(*value);
  }
  void operator()(const char* key, const std::optional<HeldOutErrors>& value) const {
    if (value) json[key] = {number(value->rtn), number(value->gptq), number(value->kept)};
  }
  void operator()(const char* key, const std::vector<RoundingStep>& steps) const {
    json[key] = OrderedJson::array();
    for (const RoundingStep& step : steps) {
      OrderedJson one = {{"name", step.name}, {"calibration", number(step.calibration)}};
      Write{one}("held_out", step.held_out);
      json[key].push_back(std::move(one));
    }
  }
};

struct Read {
  const OrderedJson& json;

  template <typename T>
  void operator()(const char* key, T& value) const {
    json.at(key).get_to(value);
  }
  void operator()(const char* key, double& value) const { value = number(json.at(key)); }
  void operator()(const char* key, std::optional<double>& value) const {
    if (json.contains(key)) value = number(json.at(key));
  }
  void operator()(const char* key, std::optional<HeldOutErrors>& value) const {
    if (!json.contains(key)) return;
    const OrderedJson& three = json.at(key);
    value = {number(three.at(0)), number(three.at(1)), number(three.at(2))};
  }
  void operator()(const char* key, std::vector<RoundingStep>& steps) const {
    for (const OrderedJson& one : json.at(key)) {
      steps.push_back({one.at("name"), number(one.at("calibration")), {}});
      Read{one}("held_out", steps.back().held_out);
    }
  }
};

}  // namespace

OrderedJson layer_result_json(const LayerResult& result) {
  OrderedJson json;
  visit_quantized(result, Write{json});
  return json;
}

LayerResult layer_result(const OrderedJson& json) {
  LayerResult result;
  visit_quantized(result, Read{json});
  return result;
}

OrderedJson pruned_layer_json(const PrunedLayer& result) {
  OrderedJson json;
  visit_pruned(result, Write{json});
  return json;
}

PrunedLayer pruned_layer(const OrderedJson& json) {
  PrunedLayer result;
  visit_pruned(result, Read{json});
  return result;
}

}  // namespace curvq::internal
