#include "statistics_json.h"

#include <vector>

namespace curvq::cli {

OrderedJson to_json(const Estimate& estimate) {
  return {
      {"value", estimate.value}, {"stderr", estimate.standard_error}, {"probes", estimate.samples}};
}

OrderedJson to_json(const Eigenpair& pair, int64_t iterations) {
  return {{"value", pair.value},
          {"residual", pair.residual},
          {"error_bound", pair.error_bound},
          {"iterations", iterations},
          {"converged", pair.converged}};
}

OrderedJson to_json(const torch::Tensor& values) {
  const torch::Tensor wide = values.to(torch::kFloat64).contiguous();
  if (wide.dim() == 1) {
    const double* begin = wide.data_ptr<double>();
    return std::vector<double>(begin, begin + wide.numel());
  }
  OrderedJson rows = OrderedJson::array();
  for (int64_t i = 0; i < wide.size(0); ++i) rows.push_back(to_json(wide[i]));
  return rows;
}

// Means of the first 2, 3, ... of independent samples, with half their 95 % intervals.
OrderedJson running_means(const torch::Tensor& samples, const char* of) {
  std::vector<double> at, value, half_width;
  for (int64_t k = 2; k <= samples.numel(); ++k) {
    const Estimate estimate = estimate_mean(samples.narrow(0, 0, k));
    at.push_back(static_cast<double>(k));
    value.push_back(estimate.value);
    half_width.push_back(estimate.half_width);
  }
  return {{"of", of}, {"by", "probes"}, {"at", at}, {"value", value}, {"half_width", half_width}};
}

}  // namespace curvq::cli
