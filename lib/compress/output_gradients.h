// What the model's output makes of each layer's output: how much every calibration token matters,
// and which directions do.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "compress/run_state.h"
#include "compress/scratch_file.h"
#include "curvq/nn/decoder.h"

namespace curvq::internal {

// A chunk of tokens in a block: `first`, the number of its first token; inputs [n, t, in] of each
// group of block_linears(); gradients [n, t, out] in the outputs of its linear layers, in that
// order.
using GradientVisitor =
    std::function<void(int64_t layer, int64_t first, const std::vector<torch::Tensor>& inputs,
                       const std::vector<torch::Tensor>& gradients)>;

// Visits all blocks and all tokens. The gradients are those of the summed negative log likelihood,
// labels drawn from the model's own softmax, one a position, so that E[g g^T] is the output factor
// of the Fisher matrix, the Hessian of KL(model || .). Of an encoder with outputs h they are those
// of r h, r drawn from N(0, 1), so that E[g g^T] is that of the Hessian of |h' - h|^2 / 2.
//   ids [n, t] int64
// Goes about 512 tokens at a time forward, keeping each block's input and products, and back block
// by block; only one block's weights are in memory. Costs two forward passes. Same seed, same
// result.
void visit_output_gradients(const DecoderModel& model, const torch::Tensor& ids, uint64_t seed,
                            const GradientVisitor& visit);

// Floats that this holds at its peak, for windows of `length` tokens.
int64_t gradient_floats(const DecoderConfig& config, int64_t length);

// Of a linear layer, g_t its gradient at token t as above.
struct OutputGradients {
  torch::Tensor energies;  // [n * t] float32: |g_t|^2, 0 in windows that did not go backwards
  torch::Tensor factor;    // [out, out] float32: the mean of g g^T; undefined where not wanted
  torch::Tensor held_out;  // the same of the held-out windows; undefined if there are none
  int64_t samples = 0;     // gradients that `factor` is the mean of
};

struct GradientOptions {
  uint64_t seed = 0;     // of the labels
  int64_t held_out = 0;  // windows, the last ones, that do not enter `factor`
  double share = 1;      // of the windows that go backwards, above 0; of both kinds at least one
};

// For [layer][linear, in the order of block_linears()].
//   ids [n, t] int64
// Only one block's factors are in memory; `factors` holds the others, and null means that none are
// wanted.
std::vector<std::vector<OutputGradients>> output_gradients(const DecoderModel& model,
                                                           const torch::Tensor& ids,
                                                           const GradientOptions& options,
                                                           ScratchFile* factors);

// To a run's state and back, mapped.
bool has_gradients(const RunState& state);
void save_gradients(const RunState& state,
                    const std::vector<std::vector<OutputGradients>>& gradients);
std::vector<std::vector<OutputGradients>> load_gradients(const RunState& state);

// The factor of an estimate from `samples` gradients, drawn towards the identity where they are
// few: (1 - rho) G / mean(diag G) + rho I with rho = factor_shrinkage(), R = rows of G. Noise that
// rounding would follow costs more than the directions it hides. The identity for a G of zeros.
torch::Tensor shrunk_factor(const torch::Tensor& factor, int64_t samples);
// 10 R / (10 R + samples).
double factor_shrinkage(int64_t rows, int64_t samples);

// Row weights u_t = (1 + w_t sum |x|^2 / sum w |x|^2) / 2: with them X^T diag(u) X has the trace of
// X^T X, half of it from plain tokens and half from tokens by their energies w.
//   x [tokens, in], energies [tokens] -> [tokens]. All ones where the energies say nothing.
torch::Tensor mixed_weights(const torch::Tensor& x, const torch::Tensor& energies);

}  // namespace curvq::internal
