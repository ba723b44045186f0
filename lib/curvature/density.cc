#include "curvq/curvature/density.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "curvature/krylov.h"
#include "curvq/core/error.h"

namespace curvq {

void DensityOptions::validate() const {
  if (probes < 2)
    throw UsageError("probes is " + std::to_string(probes) + ", an error band needs 2 or more");
  if (steps < 2) throw UsageError("steps is " + std::to_string(steps) + ", must be 2 or more");
  if (points < 2) throw UsageError("points is " + std::to_string(points) + ", must be 2 or more");
  if (!(width >= 0)) throw UsageError("width must be 0 or more");
  if (!(near_zero >= 0)) throw UsageError("near_zero must be 0 or more");
}

DensityResult spectral_density(LinearOperator& op, const DensityOptions& options,
                               torch::Generator generator) {
  options.validate();
  const int64_t n = op.dimension(), steps = std::min(options.steps, n);
  DensityResult result;
  result.nodes = torch::zeros({options.probes, steps}, torch::kFloat64);
  result.weights = torch::zeros_like(result.nodes);
  for (int64_t p = 0; p < options.probes; ++p) {
    KrylovBasis basis(op, draw_probes(options.probe, 1, n, op.options(), generator)[0], steps);
    while (basis.size() < steps && !basis.exhausted()) basis.extend();
    const auto [theta, y] = torch::linalg_eigh(basis.projected());
    result.nodes[p].narrow(0, 0, basis.size()).copy_(theta);
    result.weights[p].narrow(0, 0, basis.size()).copy_(y[0].square());
    result.products += basis.products();
  }
  const double low = result.nodes.min().item<double>(), high = result.nodes.max().item<double>();
  const double largest = std::max(std::abs(low), std::abs(high));
  const double range = high > low ? high - low : std::max(largest, 1.0);
  result.width = options.width > 0 ? options.width : 0.01 * range;
  result.near_zero = options.near_zero > 0 ? options.near_zero : 1e-3 * largest;
  // 5 standard deviations beyond the nodes: 6e-7 of a Gaussian is outside.
  result.at = torch::linspace(low - 5 * result.width, high + 5 * result.width, options.points,
                              torch::kFloat64);
  const torch::Tensor z =
      (result.at.reshape({1, 1, -1}) - result.nodes.unsqueeze(2)) / result.width;
  const torch::Tensor curves =
      (result.weights.unsqueeze(2) * (-0.5 * z.square()).exp()).sum(1) /
      (result.width * std::sqrt(2 * std::numbers::pi));  // [probes, points]
  result.density = curves.mean(0);
  result.standard_error = curves.std(0, /*unbiased=*/true) / std::sqrt(1.0 * options.probes);
  result.near_zero_mass =
      estimate_mean((result.weights * (result.nodes.abs() <= result.near_zero)).sum(1));
  result.trace = estimate_mean((result.weights * result.nodes).sum(1) * n);
  return result;
}

}  // namespace curvq
