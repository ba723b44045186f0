// Losses: what is differentiated behind a model's outputs.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

namespace curvq {

// A sum of loss terms, each a function of one row of outputs (the last dimension) and its target.
// A problem divides it by the number of its terms, so that everything is for the mean.
//
// `outputs` are what the model returned, [..., classes]; derivatives have their shape. Immutable;
// safe to use concurrently.
class Loss {
 public:
  virtual ~Loss() = default;

  virtual std::string name() const = 0;
  // Loss terms that `targets` hold.
  virtual int64_t num_terms(const torch::Tensor& targets) const = 0;
  // The sum over the terms, a differentiable scalar. Throws UsageError for targets that do not fit.
  virtual torch::Tensor sum(const torch::Tensor& outputs, const torch::Tensor& targets) const = 0;

  // d sum / d outputs: a row for each term. By automatic differentiation unless overridden.
  virtual torch::Tensor gradient(const torch::Tensor& outputs, const torch::Tensor& targets) const;
  // (d^2 sum / d outputs^2) u, row by row. By automatic differentiation unless overridden.
  virtual torch::Tensor hessian_product(const torch::Tensor& outputs, const torch::Tensor& targets,
                                        const torch::Tensor& u) const;

  // A root S of the Hessian in the outputs, S S^T = d^2 l / d f^2 of each term, as its columns:
  // [columns, outputs' shape], zero where a target is none. Throws UnsupportedError where none is
  // known; the columns of all terms are in memory at once.
  virtual torch::Tensor hessian_columns(const torch::Tensor& outputs,
                                        const torch::Tensor& targets) const;

  // True if each term is -log p(target | outputs) of an exponential family whose natural parameters
  // are the outputs: then the true Fisher matrix equals the Gauss-Newton matrix (Martens 2020,
  // section 9.2), and sampled_gradient() works.
  virtual bool is_likelihood() const { return false; }
  // False where the "outputs" are the loss already, so that nothing can be said of outputs.
  virtual bool has_outputs() const { return true; }
  // gradient() at targets drawn from the model's own distribution p(. | outputs). Throws
  // UnsupportedError where the loss is not a likelihood.
  virtual torch::Tensor sampled_gradient(const torch::Tensor& outputs, const torch::Tensor& targets,
                                         torch::Generator generator) const;
};

// -log softmax(outputs)[target]; outputs [..., classes], targets int64 [...]. A negative target is
// no loss term. The Hessian in the outputs, diag(p) - p p^T, is applied as p * u - p (p . u).
std::shared_ptr<const Loss> cross_entropy();

// Half the squared error, 1/2 |outputs - targets|^2 a row; targets of the outputs' shape. The
// likelihood is a Gaussian of unit variance.
std::shared_ptr<const Loss> mse();

// By name, "cross_entropy" or "mse". Throws UsageError for others.
std::shared_ptr<const Loss> loss_by_name(const std::string& name);

// For models that return their own mean loss over the batch.
std::shared_ptr<const Loss> loss_of_model();

// Any function (outputs, targets) -> scalar that is a mean over the samples, the first dimension of
// `targets`. Gauss-Newton products take its second derivative by automatic differentiation.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;
std::shared_ptr<const Loss> custom_loss(LossFunction mean, std::string name = "custom");

}  // namespace curvq
