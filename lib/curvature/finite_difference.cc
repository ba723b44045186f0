#include "curvq/curvature/finite_difference.h"

#include <cmath>
#include <limits>

namespace curvq {
namespace {

double norm_of(const torch::Tensor& vector) {
  return torch::linalg_vector_norm(vector, 2.0).item<double>();
}

}  // namespace

double finite_difference_error(const Problem& problem, const torch::Tensor& v,
                               const torch::Tensor& hv) {
  const torch::Tensor theta = torch::zeros({problem.dimension()}, problem.options());
  problem.add_to(theta, problem.values());
  const auto gradient_at = [&](const torch::Tensor& point) {
    torch::NoGradGuard no_grad;
    const std::vector<torch::Tensor> from = problem.split(point);
    std::vector<torch::Tensor> to = problem.values();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    return problem.gradient().gradient;
  };
  const double epsilon = problem.options().dtype() == torch::kFloat64
                             ? std::numeric_limits<double>::epsilon()
                             : std::numeric_limits<float>::epsilon();
  const double step = std::cbrt(epsilon) * (1 + norm_of(theta)) / norm_of(v);
  const torch::Tensor above = gradient_at(theta + step * v);
  const torch::Tensor difference = (above - gradient_at(theta - step * v)) / (2 * step);
  gradient_at(theta);
  return norm_of(difference - hv) / norm_of(hv);
}

}  // namespace curvq
