// How much each calibration token matters to the model's output, layer by layer.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq::internal {

// |g_t|^2 of every linear layer: g_t the gradient in the layer's output at token t of the summed
// negative log likelihood, labels drawn from the model's own softmax, one a position, so that
// E[g g^T] is the output factor of the Fisher matrix, the Hessian of KL(model || .).
//   ids [n, t] int64
// Returns [layer][linear, in the order of block_linears()] a tensor [n * t] float32. Goes a few
// windows at a time forward, keeping each block's input, and back block by block; only one block's
// weights are in memory. Costs three forward passes. Same seed, same result.
std::vector<std::vector<torch::Tensor>> output_gradient_energies(const DecoderModel& model,
                                                                 const torch::Tensor& ids,
                                                                 uint64_t seed);

// Row weights u_t = (1 + w_t sum |x|^2 / sum w |x|^2) / 2: with them X^T diag(u) X has the trace of
// X^T X, half of it from plain tokens and half from tokens by their energies w.
//   x [tokens, in], energies [tokens] -> [tokens]. All ones where the energies say nothing.
torch::Tensor mixed_weights(const torch::Tensor& x, const torch::Tensor& energies);

}  // namespace curvq::internal
