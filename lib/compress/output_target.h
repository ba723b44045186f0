// The weight whose outputs on quantized inputs come closest to the float layer's.
#pragma once

#include <torch/torch.h>

namespace curvq::internal {

// W* = W + (a W C + b R) (H + damping mean(diag H) I)^-1, the ridge regression of
// a W (x_f - x_q) + b r on x_q:
//   weight         [out, in] float32
//   hessian        [in, in]   H = 2/N sum x_q x_q^T
//   input_cross    [in, in]   C = 2/N sum (x_f - x_q) x_q^T, x_f the float model's inputs
//   residual_cross [out, in]  R = 2/N sum r x_q^T, r what the residual stream of the float model
//   has
//                             ahead of the quantized one's; undefined where the layer does not
//                             write to the stream
// a = b = 1 would make up for all error of earlier layers on the calibration tokens; one half
// generalises better. Float64 inside. Throws NumericalError if H is not positive definite even with
// the damping.
torch::Tensor corrected_weight(const torch::Tensor& weight, const torch::Tensor& hessian,
                               const torch::Tensor& input_cross,
                               const torch::Tensor& residual_cross, double a, double b,
                               double damping);

}  // namespace curvq::internal
