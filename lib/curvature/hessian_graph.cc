#include <torch/torch.h>

#include "curvature/chunk_graph.h"
#include "curvq/core/error.h"
#include "nn/torch_errors.h"

namespace curvq {
namespace {

using torch::autograd::grad;

class HessianGraph : public ChunkGraph {
 public:
  HessianGraph(const Problem& problem, const Batch& batch)
      : name_(problem.model().name), parameters_(problem.values()) {
    const torch::Tensor loss = problem.loss_of(batch, problem.outputs(batch));
    gradient_ = grad({loss}, parameters_, {}, true, /*create_graph=*/true, /*allow_unused=*/true);
    for (size_t i = 0; i < gradient_.size(); ++i) {
      if (gradient_[i].defined()) continue;
      throw UsageError("the loss of " + name_ + " does not depend on " +
                       problem.parameters()[i].name + "; leave it out");
    }
  }

  // The derivative of g^T v.
  std::vector<torch::Tensor> product(const std::vector<torch::Tensor>& vector,
                                     bool retain) override {
    std::vector<torch::Tensor> outputs, seeds;
    for (size_t i = 0; i < gradient_.size(); ++i) {
      if (!gradient_[i].requires_grad()) continue;  // the loss is linear in this parameter
      outputs.push_back(gradient_[i]);
      seeds.push_back(vector[i]);
    }
    if (outputs.empty()) return std::vector<torch::Tensor>(parameters_.size());
    return grad(outputs, parameters_, seeds, retain, false, /*allow_unused=*/true);
  }

 private:
  std::string name_;
  std::vector<torch::Tensor> parameters_, gradient_;
};

}  // namespace

std::shared_ptr<ChunkGraph> hessian_graph(const Problem& problem, const Batch& batch) {
  return std::make_shared<HessianGraph>(problem, batch);
}

}  // namespace curvq
