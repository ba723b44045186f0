#include <algorithm>
#include <cmath>
#include <string>

#include "curvature/held_out.h"
#include "curvq/core/error.h"
#include "curvq/curvature/trace.h"

namespace curvq {

TraceResult xtrace(LinearOperator& op, int64_t products, torch::Generator generator) {
  if (products < 6)
    throw UsageError("xtrace needs 6 products or more, got " + std::to_string(products));
  const HeldOutSketch s(op, products / 2, ProbeKind::kNormal, generator);
  const double inside = s.core.trace().item<double>();
  TraceResult result;
  result.products = s.products;
  result.converged = true;
  if (s.complete) {  // H = Q^T Q H: the trace is that of the core
    const double rounding = s.epsilon * s.core.norm().item<double>() * s.core.size(0);
    result.trace.value = inside;
    result.trace.standard_error = result.trace.half_width = rounding;
    result.trace.samples = s.probes.size(0);
    return result;
  }
  const int64_t n = op.dimension(), m = s.probes.size(0);
  // With `i` held out of a subspace that lacks the directions `out` [k, m], orthonormal rows.
  const auto sample = [&](int64_t i, const torch::Tensor& out) {
    // mu = omega_i - Q_i^T Q_i omega_i, Q_i spanning what is left of Q.
    const torch::Tensor c = s.inner[i] - out.t().mv(out.mv(s.inner[i]));
    const double form = (s.forms[i] - 2 * c.dot(s.sketch[i]) + c.dot(s.core.mv(c))).item<double>();
    // A normal vector's residual has a length and a direction that are independent; its length is
    // replaced by the expected one.
    const double length = (s.squares[i] - c.dot(c)).item<double>();
    const auto left = static_cast<double>(n - m + out.size(0));
    return inside - (out * out.matmul(s.core)).sum().item<double>() + left / length * form;
  };
  double mean = 0;
  torch::Tensor without = torch::zeros({m}, torch::kFloat64);  // the estimate from other probes
  for (int64_t i = 0; i < m; ++i) {
    const torch::Tensor first = s.directions[i];
    mean += sample(i, first.unsqueeze(0)) / static_cast<double>(m);
    for (int64_t j = 0; j < m; ++j) {
      if (j == i) continue;
      const torch::Tensor second = s.directions[j] - first * first.dot(s.directions[j]);
      without[i] += sample(j, torch::stack({first, second / second.norm()})) / (m - 1);
    }
  }
  result.trace.value = mean;
  result.trace.samples = m;
  result.trace.standard_error =
      std::sqrt((without - without.mean()).square().sum().item<double>() * (m - 1) / m);
  result.trace.half_width = student_t_quantile(0.975, m - 1) * result.trace.standard_error;
  return result;
}

}  // namespace curvq
