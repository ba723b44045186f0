// The factors A of a decoder's linear layers alone, from one forward pass.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq {

// Layers that read the same input, and their factor: A [in, in] = mean of x x^T over all tokens,
// without the row and column of a bias. 2 A is what GPTQ calls the Hessian.
struct InputFactor {
  std::vector<std::string> layers;
  torch::Tensor a;
};

// Goes through the model block by block, in memory the residual stream of all tokens and one
// block's weights; `sink` gets each group of block_linears(), in order. In the dtype of the model.
//   ids  [n, t] int64
//   returns the residual stream behind the last block, [n, t, hidden]
// A costs in^2 operations a token and input beside 2 in out of each layer that reads it: see
// input_factor_work(). Throws UsageError for ids that are not [n, t], NumericalError naming the
// layer whose inputs are not finite.
torch::Tensor input_factors(const DecoderModel& model, const torch::Tensor& ids,
                            const std::function<void(const InputFactor&)>& sink);

// Operations a token, multiplications and additions counted apart, of which the time of
// input_factors() over that of the forward pass alone is made; attention over windows of `length`
// tokens, the scores of all pairs. The bound of that ratio, where all run at the same speed, is
// (forward + factors) / forward.
struct InputFactorWork {
  double forward = 0;  // of all blocks
  double head = 0;     // of the output head, which is no part of `forward`
  double factors = 0;
};
InputFactorWork input_factor_work(const DecoderConfig& config, int64_t length);

}  // namespace curvq
