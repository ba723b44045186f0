// What the model's output makes of each layer's output: how much every calibration token matters,
// and which directions do.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "compress/scratch_file.h"
#include "curvq/nn/decoder.h"

namespace curvq::internal {

// Of a linear layer: g_t is the gradient in its output at token t of the summed negative log
// likelihood, labels drawn from the model's own softmax, one a position, so that E[g g^T] is the
// output factor of the Fisher matrix, the Hessian of KL(model || .).
struct OutputGradients {
  torch::Tensor energies;  // [n * t] float32: |g_t|^2
  torch::Tensor factor;    // [out, out] float32: the mean of g g^T; undefined where not wanted
  torch::Tensor held_out;  // the same of the held-out windows; undefined if there are none
};

// For [layer][linear, in the order of block_linears()].
//   ids [n, t] int64, of which the last `held_out` do not enter `factor`
// Goes a few windows at a time forward, keeping each block's input, and back block by block; only
// one block's weights and factors are in memory; `factors` holds the others, and null means that
// none are wanted. Costs three forward passes. Same seed, same result.
std::vector<std::vector<OutputGradients>> output_gradients(const DecoderModel& model,
                                                           const torch::Tensor& ids, uint64_t seed,
                                                           int64_t held_out, ScratchFile* factors);

// The factor of an estimate from `samples` gradients, drawn towards the identity where they are
// few: (1 - rho) G / mean(diag G) + rho I with rho = 10 R / (10 R + samples), R = rows of G. Noise
// that rounding would follow costs more than the directions it hides. The identity for a G of
// zeros.
torch::Tensor shrunk_factor(const torch::Tensor& factor, int64_t samples);

// Row weights u_t = (1 + w_t sum |x|^2 / sum w |x|^2) / 2: with them X^T diag(u) X has the trace of
// X^T X, half of it from plain tokens and half from tokens by their energies w.
//   x [tokens, in], energies [tokens] -> [tokens]. All ones where the energies say nothing.
torch::Tensor mixed_weights(const torch::Tensor& x, const torch::Tensor& energies);

}  // namespace curvq::internal
