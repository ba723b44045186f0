// Activation checkpointing that survives a second derivative.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace curvq {

using TensorFunction = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

// fn(inputs), of which only the inputs are kept for the backward pass: what lies between is
// computed again there (Chen et al. 2016). The gradient is itself a checkpointed function, so that
// a product with the Hessian (gradient of g^T v) also holds the graph of one call at a time.
//   fn  depends on nothing that requires gradients but `inputs`, and gives the same result each
//   time
// Costs one more forward for a gradient; about two more forwards and a backward for a product.
// Derivatives up to the second; a third throws.
torch::Tensor checkpointed(TensorFunction fn, const std::vector<torch::Tensor>& inputs);

}  // namespace curvq
