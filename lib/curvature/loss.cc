#include "curvq/curvature/loss.h"

#include <utility>

#include "curvature/label_gradients.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/layer_factors.h"

namespace curvq {
namespace {

// d sum / d outputs of a leaf; undefined where the sum does not depend on it.
torch::Tensor derivative(const torch::Tensor& sum, const torch::Tensor& leaf, bool create_graph) {
  if (!sum.requires_grad()) return {};
  return torch::autograd::grad({sum}, {leaf}, {}, create_graph, create_graph, true)[0];
}

class CrossEntropy : public Loss {
 public:
  std::string name() const override { return "cross_entropy"; }
  bool is_likelihood() const override { return true; }

  int64_t num_terms(const torch::Tensor& targets) const override {
    return (targets >= 0).sum().item<int64_t>();
  }

  torch::Tensor sum(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    check(outputs, targets);
    constexpr int64_t kIgnore = -100;
    const torch::Tensor flat = targets.reshape({-1});
    return at::cross_entropy_loss(outputs.reshape({-1, outputs.size(-1)}),
                                  flat.masked_fill(flat < 0, kIgnore), {}, at::Reduction::Sum,
                                  kIgnore);
  }

  torch::Tensor gradient(const torch::Tensor& outputs,
                         const torch::Tensor& targets) const override {
    return minus_one_hot(torch::softmax(outputs, -1), targets, targets);
  }

  torch::Tensor hessian_product(const torch::Tensor& outputs, const torch::Tensor& targets,
                                const torch::Tensor& u) const override {
    const torch::Tensor p = torch::softmax(outputs, -1);
    const torch::Tensor pu = p * u;
    return keep_terms(pu - p * pu.sum(-1, true), targets);
  }

  torch::Tensor sampled_gradient(const torch::Tensor& outputs, const torch::Tensor& targets,
                                 torch::Generator generator) const override {
    const torch::Tensor p = torch::softmax(outputs, -1);
    const torch::Tensor labels =
        sample_labels(p.reshape({-1, p.size(-1)}), generator).to(p.device()).view(targets.sizes());
    return minus_one_hot(p, labels, targets);
  }

  torch::Tensor hessian_columns(const torch::Tensor& outputs,
                                const torch::Tensor& targets) const override {
    const int64_t classes = outputs.size(-1);
    std::vector<int64_t> shape = outputs.sizes().vec();
    shape.insert(shape.begin(), classes);
    const torch::Tensor columns =
        softmax_hessian_columns(outputs.detach().reshape({-1, classes})).reshape(shape);
    return keep_terms(columns, targets.unsqueeze(0));
  }

 private:
  static void check(const torch::Tensor& outputs, const torch::Tensor& targets) {
    if (targets.scalar_type() != torch::kInt64)
      throw UsageError("cross entropy needs targets of int64, not " +
                       std::string(torch::toString(targets.scalar_type())));
    if (outputs.dim() < 1 || outputs.sizes().slice(0, outputs.dim() - 1) != targets.sizes()) {
      throw UsageError(format("cross entropy of outputs %s needs a target a row, not targets %s",
                              c10::str(outputs.sizes()).c_str(),
                              c10::str(targets.sizes()).c_str()));
    }
    const int64_t highest = targets.numel() > 0 ? targets.max().item<int64_t>() : -1;
    if (highest >= outputs.size(-1)) {
      throw UsageError(format("target %lld is not one of the %lld classes of the model's outputs",
                              static_cast<long long>(highest),
                              static_cast<long long>(outputs.size(-1))));
    }
  }

  // Zero in the rows that are no loss term.
  static torch::Tensor keep_terms(const torch::Tensor& rows, const torch::Tensor& targets) {
    return rows.masked_fill((targets < 0).unsqueeze(-1), 0);
  }

  // p - e_label in the rows that are loss terms.
  static torch::Tensor minus_one_hot(const torch::Tensor& p, const torch::Tensor& labels,
                                     const torch::Tensor& targets) {
    const torch::Tensor index = labels.clamp_min(0).unsqueeze(-1);
    const torch::Tensor ones = torch::ones(index.sizes(), p.options());
    return keep_terms(p.scatter_add(-1, index, -ones), targets);
  }
};

class HalfSquaredError : public Loss {
 public:
  std::string name() const override { return "mse"; }
  bool is_likelihood() const override { return true; }

  int64_t num_terms(const torch::Tensor& targets) const override {
    return targets.dim() == 0 ? 1 : targets.numel() / std::max<int64_t>(1, targets.size(-1));
  }

  torch::Tensor sum(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    return gradient(outputs, targets).square().sum() / 2;
  }

  torch::Tensor gradient(const torch::Tensor& outputs,
                         const torch::Tensor& targets) const override {
    if (outputs.sizes() != targets.sizes()) {
      throw UsageError(format("squared error of outputs %s needs targets of that shape, not %s",
                              c10::str(outputs.sizes()).c_str(),
                              c10::str(targets.sizes()).c_str()));
    }
    return outputs - targets;
  }

  torch::Tensor hessian_product(const torch::Tensor&, const torch::Tensor&,
                                const torch::Tensor& u) const override {
    return u;
  }

  // outputs - y with y ~ N(outputs, 1).
  torch::Tensor sampled_gradient(const torch::Tensor& outputs, const torch::Tensor&,
                                 torch::Generator generator) const override {
    return torch::randn(outputs.sizes(), generator, outputs.options().requires_grad(false));
  }

  torch::Tensor hessian_columns(const torch::Tensor& outputs, const torch::Tensor&) const override {
    const int64_t n = outputs.size(-1);
    std::vector<int64_t> shape(outputs.dim() + 1, 1);
    shape.front() = shape.back() = n;
    std::vector<int64_t> expanded = outputs.sizes().vec();
    expanded.insert(expanded.begin(), n);
    return torch::eye(n, outputs.options().requires_grad(false)).view(shape).expand(expanded);
  }
};

class CustomLoss : public Loss {
 public:
  CustomLoss(LossFunction mean, std::string name, bool has_outputs)
      : mean_(std::move(mean)), name_(std::move(name)), has_outputs_(has_outputs) {}

  std::string name() const override { return name_; }
  bool has_outputs() const override { return has_outputs_; }
  int64_t num_terms(const torch::Tensor& targets) const override {
    return targets.dim() == 0 ? 1 : targets.size(0);
  }
  torch::Tensor sum(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    const torch::Tensor mean = mean_(outputs, targets);
    if (!mean.defined() || mean.numel() != 1 || !mean.is_floating_point()) {
      throw UsageError("the loss '" + name_ + "' is not a scalar but " +
                       (mean.defined() ? c10::str(mean.sizes()) : std::string("undefined")) +
                       "; return the mean over the samples");
    }
    return mean.reshape({}) * num_terms(targets);
  }

 private:
  LossFunction mean_;
  std::string name_;
  bool has_outputs_;
};

}  // namespace

torch::Tensor Loss::gradient(const torch::Tensor& outputs, const torch::Tensor& targets) const {
  torch::AutoGradMode enable(true);
  const torch::Tensor leaf = outputs.detach().requires_grad_();
  const torch::Tensor g = derivative(sum(leaf, targets), leaf, false);
  return g.defined() ? g : torch::zeros_like(outputs);
}

torch::Tensor Loss::hessian_product(const torch::Tensor& outputs, const torch::Tensor& targets,
                                    const torch::Tensor& u) const {
  torch::AutoGradMode enable(true);
  const torch::Tensor leaf = outputs.detach().requires_grad_();
  const torch::Tensor g = derivative(sum(leaf, targets), leaf, true);
  if (!g.defined() || !g.requires_grad()) return torch::zeros_like(outputs);
  const torch::Tensor product = torch::autograd::grad({g}, {leaf}, {u}, false, false, true)[0];
  return product.defined() ? product : torch::zeros_like(outputs);
}

torch::Tensor Loss::sampled_gradient(const torch::Tensor&, const torch::Tensor&,
                                     torch::Generator) const {
  throw UnsupportedError("the loss '" + name() +
                         "' is no likelihood, so that targets cannot be drawn from the model; take "
                         "the Gauss-Newton or the empirical Fisher matrix");
}

torch::Tensor Loss::hessian_columns(const torch::Tensor&, const torch::Tensor&) const {
  throw UnsupportedError("no root of the Hessian of the loss '" + name() + "' is known");
}

std::shared_ptr<const Loss> cross_entropy() { return std::make_shared<CrossEntropy>(); }

std::shared_ptr<const Loss> mse() { return std::make_shared<HalfSquaredError>(); }

std::shared_ptr<const Loss> loss_by_name(const std::string& name) {
  if (name == "cross_entropy") return cross_entropy();
  if (name == "mse") return mse();
  throw UsageError("unknown loss '" + name + "'; known: cross_entropy, mse");
}

std::shared_ptr<const Loss> custom_loss(LossFunction mean, std::string name) {
  return std::make_shared<CustomLoss>(std::move(mean), std::move(name), true);
}

std::shared_ptr<const Loss> loss_of_model() {
  return std::make_shared<CustomLoss>(
      [](const torch::Tensor& outputs, const torch::Tensor&) { return outputs; }, "model", false);
}

}  // namespace curvq
