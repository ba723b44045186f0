#include <algorithm>
#include <cmath>
#include <string>

#include "curvature/held_out.h"
#include "curvq/core/error.h"
#include "curvq/curvature/trace.h"

namespace curvq {

TraceResult xtrace(LinearOperator& op, int64_t products, torch::Generator generator) {
  if (products < 4)
    throw UsageError("xtrace needs 4 products or more, got " + std::to_string(products));
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
  torch::Tensor samples = torch::empty({m}, torch::kFloat64);
  for (int64_t i = 0; i < m; ++i) {
    // mu = omega_i - Q_i^T Q_i omega_i, Q_i spanning H omega_j of the others: Q without direction
    // s.
    const torch::Tensor out = s.directions[i], in = s.inner[i];
    const torch::Tensor c = in - out * out.dot(in);
    const double form = (s.forms[i] - 2 * c.dot(s.sketch[i]) + c.dot(s.core.mv(c))).item<double>();
    // A normal vector's residual has a length and a direction that are independent; its length is
    // replaced by the expected one.
    const double length = (s.squares[i] - c.dot(c)).item<double>();
    const double weight = (n - m + 1) / length;
    samples[i] = inside - out.dot(s.core.mv(out)).item<double>() + weight * form;
  }
  result.trace = estimate_mean(samples);
  result.trace.standard_error *= kHeldOutWidening;
  result.trace.half_width *= kHeldOutWidening;
  return result;
}

}  // namespace curvq
