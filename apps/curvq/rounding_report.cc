#include "rounding_report.h"

#include <cmath>

#include "curvq/core/log.h"
#include "quantize_report.h"

namespace curvq::cli {
namespace {

const char* method_name(const QuantizeOptions& options) {
  if (options.method == Method::kRtn) return "rtn";
  if (options.gptq.diagonal) return "obd";
  return options.gptq.rounding_order == RoundingOrder::kSaliency ? "obs" : "gptq";
}

}  // namespace

OrderedJson rounding_results_json(const QuantizeReport& report, const QuantizeOptions& options) {
  OrderedJson json = quantize_results_json(report, options);
  json["rounding"]["method"] = method_name(options);
  json["rounding"]["candidates"] = options.gptq.candidates;
  json["rounding"]["inverse"] = options.inverse_of_inputs ? "sherman-morrison" : "cholesky";
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerResult& layer = report.layers[i];
    if (std::isnan(layer.plane_bound)) continue;
    json["layers"][i]["damped_error_before_sweeps"] = layer.plane_error;
    json["layers"][i]["nearest_plane_bound"] = layer.plane_bound;
  }
  return json;
}

std::string plane_bound_text(const QuantizeReport& report) {
  double log_error = 0, log_bound = 0;
  int64_t count = 0;
  for (const LayerResult& layer : report.layers) {
    if (!(layer.plane_error > 0) || !(layer.plane_bound > 0)) continue;
    log_error += std::log(layer.plane_error);
    log_bound += std::log(layer.plane_bound);
    ++count;
  }
  if (count == 0) return "";
  const auto n = static_cast<double>(count);
  return format(
      "layer error of gptq with its damping %.3g, at most %.3g by the nearest planes (geometric "
      "means)\n",
      std::exp(log_error / n), std::exp(log_bound / n));
}

}  // namespace curvq::cli
