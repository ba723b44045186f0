#pragma once

#include <torch/torch.h>

namespace curvq {

// x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich 2019).
inline torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  return x * torch::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
}

}  // namespace curvq
