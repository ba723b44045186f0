// Layers on prepacked weights that share their inputs or end in more than a product; see
// curvq/kernels/linear.h. x is [..., in] float32.
#pragma once

#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq::internal {

// Whether all of them are prepacked.
bool all_prepacked(const std::vector<Linear>& linears);

// x W^T + b of each; x is put into the kernels' order once for all weights that can share it.
std::vector<torch::Tensor> forward_prepacked(const std::vector<const Linear*>& linears,
                                             const torch::Tensor& x);
std::vector<torch::Tensor> forward_prepacked(const std::vector<Linear>& linears,
                                             const torch::Tensor& x);

// silu(x G^T + b) * (x U^T + c), where both weights can share x; else undefined.
torch::Tensor swiglu_prepacked(const Linear& gate, const Linear& up, const torch::Tensor& x);

// x W^T + b + residual.
torch::Tensor forward_onto(const Linear& linear, const torch::Tensor& x,
                           const torch::Tensor& residual);

}  // namespace curvq::internal
