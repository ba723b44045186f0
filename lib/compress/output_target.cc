#include "compress/output_target.h"

#include "curvq/core/error.h"

namespace curvq::internal {

torch::Tensor corrected_weight(const torch::Tensor& weight, const torch::Tensor& hessian,
                               const torch::Tensor& input_cross,
                               const torch::Tensor& residual_cross, double a, double b,
                               double damping) {
  const torch::Tensor h = hessian.to(torch::kFloat64);
  const double mean = h.diagonal().mean().item<double>();
  if (mean == 0) return weight;  // no input says what is missing
  const torch::Tensor damped = h + torch::eye(h.size(0), torch::kFloat64) * (damping * mean);
  torch::Tensor wanted = a * weight.matmul(input_cross).to(torch::kFloat64);
  if (residual_cross.defined()) wanted += b * residual_cross.to(torch::kFloat64);
  const auto [factor, info] = at::linalg_cholesky_ex(damped);
  if (info.item<int>() != 0)
    throw NumericalError("the hessian is not positive definite; raise --damping");
  return (weight + at::cholesky_solve(wanted.t(), factor).t()).to(torch::kFloat32).contiguous();
}

}  // namespace curvq::internal
