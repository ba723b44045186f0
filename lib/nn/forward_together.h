#pragma once

#include <torch/torch.h>

#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq {

// Outputs of layers that read the same x. Many rows of x go through one product with the stacked
// weights, which reads x once.
std::vector<torch::Tensor> forward_together(const std::vector<Linear>& linears,
                                            const torch::Tensor& x);

}  // namespace curvq
