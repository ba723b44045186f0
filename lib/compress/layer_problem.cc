#include "compress/layer_problem.h"

namespace curvq::internal {
namespace {

const float* data(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

const float* data(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

}  // namespace

LayerProblem layer_problem(const LayerShape& layer, const Scheme& scheme, float tensor_amax,
                           const torch::Tensor& weight, const LayerMoments& moments) {
  LayerProblem problem;
  problem.name = layer.name;
  problem.weight = data(weight);
  problem.rows = layer.rows;
  problem.cols = layer.cols;
  problem.hessian = data(moments.hessian);
  problem.output_factor = data(moments.output_factor);
  problem.factor_shrinkage = moments.factor_shrinkage;
  problem.held_out_hessian = data(moments.held_out_hessian);
  problem.held_out_factor = data(moments.held_out_factor);
  problem.tensor_amax = tensor_amax;
  problem.scheme = scheme;
  return problem;
}

}  // namespace curvq::internal
