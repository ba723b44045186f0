#include <torch/torch.h>

#include "curvature/chunk_graph.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

using torch::autograd::grad;

// B u for the chunk's loss terms, without the factor 1/M.
using OutputProduct = std::function<torch::Tensor(const torch::Tensor& u)>;

// sum over the draws d of r_d (r_d . u) / draws, row by row.
OutputProduct outer_products(std::vector<torch::Tensor> residuals) {
  return [residuals = std::move(residuals)](const torch::Tensor& u) {
    torch::Tensor sum = torch::zeros_like(u);
    for (const torch::Tensor& r : residuals) sum += r * (r * u).sum(-1, true);
    return sum / static_cast<double>(residuals.size());
  };
}

OutputProduct output_product(const Problem& problem, const torch::Tensor& outputs,
                             const torch::Tensor& targets, Curvature curvature, int64_t draws,
                             torch::Generator generator) {
  const Loss* loss = &problem.loss();
  if (curvature == Curvature::kGaussNewton || curvature == Curvature::kFisher) {
    return [loss, outputs, targets](const torch::Tensor& u) {
      return loss->hessian_product(outputs, targets, u);
    };
  }
  std::vector<torch::Tensor> residuals;
  if (curvature == Curvature::kEmpiricalFisher) {
    residuals.push_back(loss->gradient(outputs, targets));
  } else {
    for (int64_t i = 0; i < draws; ++i)
      residuals.push_back(loss->sampled_gradient(outputs, targets, generator));
  }
  return outer_products(std::move(residuals));
}

class OutputGraph : public ChunkGraph {
 public:
  OutputGraph(const Problem& problem, const Batch& batch, Curvature curvature, int64_t draws,
              torch::Generator generator)
      : num_terms_(problem.num_terms()), parameters_(problem.values()) {
    outputs_ = problem.outputs(batch);
    problem.loss_of(batch, outputs_);  // its checks
    seed_ = torch::zeros_like(outputs_).requires_grad_();
    pulled_back_ = grad({outputs_}, parameters_, {seed_}, true, /*create_graph=*/true,
                        /*allow_unused=*/true);
    for (size_t i = 0; i < pulled_back_.size(); ++i) {
      if (pulled_back_[i].defined()) continue;
      throw UsageError("the outputs of " + problem.model().name + " do not depend on " +
                       problem.parameters()[i].name + "; leave it out");
    }
    output_product_ =
        output_product(problem, outputs_.detach(), batch.targets, curvature, draws, generator);
  }

  std::vector<torch::Tensor> product(const std::vector<torch::Tensor>& vector,
                                     bool retain) override {
    // J^T u is linear in u, so that its derivative in u, seeded with v, is J v.
    const torch::Tensor jv = grad(pulled_back_, {seed_}, vector, /*retain_graph=*/true)[0];
    const torch::Tensor bjv = output_product_(jv) / num_terms_;
    return grad({outputs_}, parameters_, {bjv}, retain, false, /*allow_unused=*/true);
  }

 private:
  int64_t num_terms_;
  std::vector<torch::Tensor> parameters_, pulled_back_;
  torch::Tensor outputs_, seed_;
  OutputProduct output_product_;
};

}  // namespace

std::shared_ptr<ChunkGraph> output_graph(const Problem& problem, const Batch& batch,
                                         Curvature curvature, int64_t draws,
                                         torch::Generator generator) {
  return std::make_shared<OutputGraph>(problem, batch, curvature, draws, generator);
}

}  // namespace curvq
