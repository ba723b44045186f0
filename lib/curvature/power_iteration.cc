#include <cmath>

#include "curvq/core/error.h"
#include "curvq/curvature/eigen.h"

namespace curvq {

EigenResult power_iteration(LinearOperator& op, const EigenOptions& options,
                            torch::Generator generator) {
  const int64_t n = op.dimension();
  options.validate(n);
  if (options.which != Spectrum::kLargestMagnitude)
    throw UsageError("power iteration finds the largest magnitudes only; use lanczos");
  EigenResult result;
  result.vectors = torch::zeros({options.count, n}, op.options());
  result.converged = true;
  double scale = 0;
  for (int64_t k = 0; k < options.count; ++k) {
    const torch::Tensor found = result.vectors.narrow(0, 0, k);
    const auto deflate = [&](const torch::Tensor& v) { return v - found.t().mv(found.mv(v)); };
    torch::Tensor v = k == 0 && options.start.defined()
                          ? options.start.reshape({n}).to(op.options())
                          : draw_probes(ProbeKind::kNormal, 1, n, op.options(), generator)[0];
    v = deflate(v);
    v = v / v.norm();
    Eigenpair pair{0, 0, 0, false};
    do {
      const torch::Tensor hv = deflate(op.apply(v.unsqueeze(0))[0]);
      ++result.iterations;
      pair.value = v.dot(hv).item<double>();  // Rayleigh quotient
      pair.residual = pair.error_bound = (hv - pair.value * v).norm().item<double>();
      scale = std::max(scale, std::abs(pair.value));
      pair.converged = pair.residual <= options.tolerance * scale;
      result.vectors[k].copy_(v);
      const double length = hv.norm().item<double>();
      if (length == 0) break;  // zero is the eigenvalue
      v = hv / length;
      v = deflate(v);
      v = v / v.norm();
    } while (!pair.converged && result.iterations < options.max_products);
    result.pairs.push_back(pair);
    result.converged = result.converged && pair.converged;
    if (result.iterations >= options.max_products) break;
  }
  const auto found = static_cast<int64_t>(result.pairs.size());
  result.converged = result.converged && found == options.count;
  result.vectors = result.vectors.narrow(0, 0, found);
  return result;
}

}  // namespace curvq
