#include "compress/inverse_of_inputs.h"

#include "curvq/curvature/inverse_hessian.h"

namespace curvq::internal {

std::vector<double> sherman_morrison_inverse(const float* inputs, int64_t count, int64_t n,
                                             double damping, double mean) {
  torch::NoGradGuard no_grad;
  const torch::Tensor rows =
      torch::from_blob(const_cast<float*>(inputs), {count, n}).to(torch::kFloat64);
  InverseHessianOptions options;
  options.alpha = damping * mean / 2;  // inverse_hessian() inverts the mean of x x^T, half of H
  options.rank = 1;
  const InverseHessian inverse = inverse_hessian(rows, options);
  const torch::Tensor block = inverse.block(0).div(2).contiguous();
  return {block.data_ptr<double>(), block.data_ptr<double>() + n * n};
}

}  // namespace curvq::internal
