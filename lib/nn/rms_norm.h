#pragma once

#include <torch/torch.h>

namespace curvq {

// x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich 2019).
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon);

}  // namespace curvq
