#include "curvq/curvature/layer_factors.h"

#include <string>

#include "curvq/core/error.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

torch::Tensor with_positions(const torch::Tensor& rows, const char* what) {
  if (rows.dim() < 2)
    throw UsageError(std::string(what) + " need 2 dimensions or more, got " +
                     std::to_string(rows.dim()));
  if (!torch::isfinite(rows).all().item<bool>())
    throw NumericalError(std::string(what) + " of a layer are not finite; check the model's " +
                         "activations and its loss");
  const torch::Tensor wide =
      rows.scalar_type() == torch::kFloat64 ? rows : rows.to(torch::kFloat32);
  return rows.dim() == 2 ? wide.unsqueeze(1) : wide;
}

torch::Tensor gram(const torch::Tensor& rows) {
  const torch::Tensor flat = rows.reshape({-1, rows.size(-1)});
  if (flat.scalar_type() != torch::kFloat32) return flat.t().matmul(flat);
  const torch::Tensor x = flat.contiguous();  // half of the products: the other half mirrors them
  const int64_t k = x.size(1);
  torch::Tensor gram = torch::zeros({k, k}, x.options().requires_grad(false));
  accumulate_gram(x.data_ptr<float>(), x.size(0), k, k, 1, gram.data_ptr<float>());
  mirror_lower(gram.data_ptr<float>(), k);
  return gram;
}

}  // namespace

torch::Tensor append_one(const torch::Tensor& inputs) {
  torch::IntArrayRef sizes = inputs.sizes();
  std::vector<int64_t> shape(sizes.begin(), sizes.end());
  shape.back() = 1;
  return torch::cat({inputs, torch::ones(shape, inputs.options())}, -1);
}

torch::Tensor unfold_inputs(const torch::Tensor& images, const Convolution& c) {
  return torch::im2col(images, c.kernel, c.dilation, c.padding, c.stride).transpose(1, 2);
}

torch::Tensor unfold_gradients(const torch::Tensor& gradients) {
  if (gradients.dim() < 4)
    throw UsageError("gradients of a convolution need 4 dimensions or more, got " +
                     std::to_string(gradients.dim()));
  return gradients.flatten(-2).transpose(-1, -2);
}

torch::Tensor input_factor(const torch::Tensor& inputs, WeightSharing sharing,
                           const torch::Tensor& weights) {
  torch::Tensor x = with_positions(inputs, "inputs");
  if (x.dim() != 3) throw UsageError("inputs have the shape [n, positions, in] or [n, in]");
  const double rows = static_cast<double>(x.size(0) * x.size(1));
  if (sharing == WeightSharing::kReduce) {
    if (weights.defined()) throw UsageError("token weights need weight sharing by expansion");
    return gram(x.mean(1)) / static_cast<double>(x.size(0));
  }
  if (!weights.defined()) return gram(x) / rows;
  if (weights.numel() != x.size(0) * x.size(1))
    throw UsageError("there are " + std::to_string(weights.numel()) + " token weights for " +
                     std::to_string(x.size(0) * x.size(1)) + " inputs");
  const torch::Tensor flat = x.reshape({-1, x.size(-1)});
  return flat.t().matmul(flat * weights.reshape({-1, 1}).to(flat.options())) / rows;
}

torch::Tensor embedding_input_factor(const torch::Tensor& ids, int64_t vocabulary) {
  if (ids.numel() == 0) throw UsageError("there are no ids");
  const int64_t low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
  if (low < 0 || high >= vocabulary)
    throw UsageError("ids reach from " + std::to_string(low) + " to " + std::to_string(high) +
                     ", the vocabulary has " + std::to_string(vocabulary));
  return torch::bincount(ids.flatten(), {}, vocabulary).to(torch::kFloat64) /
         static_cast<double>(ids.numel());
}

torch::Tensor output_factor(const torch::Tensor& gradients, WeightSharing sharing, int64_t terms) {
  if (terms < 1) throw UsageError("there must be 1 loss term or more");
  const torch::Tensor g = with_positions(gradients, "gradients");
  return gram(sharing == WeightSharing::kReduce ? g.sum(-2) : g) / static_cast<double>(terms);
}

torch::Tensor softmax_hessian_columns(const torch::Tensor& logits) {
  const torch::Tensor p = torch::softmax(logits, -1), root = p.sqrt();
  return (torch::diag_embed(root) - p.unsqueeze(2) * root.unsqueeze(1)).permute({2, 0, 1});
}

torch::Tensor sampled_label_gradients(const torch::Tensor& logits, int64_t draws,
                                      torch::Generator generator) {
  if (draws < 1) throw UsageError("draws is " + std::to_string(draws) + ", must be 1 or more");
  const torch::Tensor p = torch::softmax(logits, -1);
  const torch::Tensor labels = torch::multinomial(p.cpu(), draws, /*replacement=*/true, generator)
                                   .t()
                                   .to(logits.device());  // [draws, M]
  return p.unsqueeze(0) - torch::one_hot(labels, p.size(-1)).to(p.dtype());
}

torch::Tensor token_weights(const torch::Tensor& gradients, const torch::Tensor& g,
                            double damping) {
  if (!(damping > 0)) throw UsageError("damping must be positive");
  const double shift = damping * g.diagonal().mean().item<double>();
  // All gradients are zero: no token matters.
  if (shift == 0) return torch::zeros(gradients.sizes().slice(0, gradients.dim() - 1), g.options());
  const torch::Tensor factor =
      torch::linalg_cholesky(g + shift * torch::eye(g.size(0), g.options()));
  const torch::Tensor flat = gradients.reshape({-1, g.size(0)}).to(g.options());
  const torch::Tensor half =
      torch::linalg_solve_triangular(factor, flat.t(), /*upper=*/false);  // L^-1 g
  return half.square().sum(0).reshape(gradients.sizes().slice(0, gradients.dim() - 1));
}

}  // namespace curvq
