// Diagonals of the Hessian by one backward recursion through a plain feed-forward network.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "curvq/curvature/layer_factors.h"

namespace curvq {

enum class SequentialKind { kLinear, kConvolution, kTanh, kRelu, kSigmoid, kFlatten };

// One layer of a feed-forward network.
struct SequentialLayer {
  SequentialKind kind;
  torch::Tensor weight;  // linear [out, in], convolution [out, c, kh, kw]; else undefined
  torch::Tensor bias;    // [out], or undefined
  Convolution convolution;
};

// The inputs of every layer and, last, the outputs of the network: one tensor more than layers.
std::vector<torch::Tensor> sequential_activations(const std::vector<SequentialLayer>& layers,
                                                  const torch::Tensor& x);

// First and second derivatives [n, out] of each sample's loss in its outputs.
struct OutputDerivatives {
  torch::Tensor first, second;
};
// Cross entropy of a softmax: p - onehot(y) and the exact diagonal p - p * p; labels y [n] int64.
OutputDerivatives cross_entropy_derivatives(const torch::Tensor& logits, const torch::Tensor& y);
// Half the squared error summed over outputs: f - y and 1.
OutputDerivatives squared_error_derivatives(const torch::Tensor& outputs, const torch::Tensor& y);

// Diagonal of one layer's parameters; undefined where there are none.
struct LayerDiagonal {
  torch::Tensor weight, bias;
};

// HesScale (Elsayed and Mahmood 2022), a layer's diagonal d^2L/da^2 passed down as LeCun, Denker
// and Solla (1990, Optimal Brain Damage) do:
//   linear        d_in = (W * W)^T d
//   activation s  d_in = s'^2 d + s'' g        (g = dL/ds, passed down exactly)
//   weight        d^2L/dW_oi^2 = d_o x_i^2, bias d_o; summed over positions of a convolution
// Off-diagonal second derivatives are dropped between layers, so that the last layer with
// parameters is exact (p - p * p at a softmax), earlier ones are not. Mean over samples.
//   gauss_newton  leaves s'' g out: the Levenberg-Marquardt form of Optimal Brain Damage, which is
//                 never negative
// Returned in the order of `layers`. x [n, ...]; derivatives at the network's outputs for x. Throws
// UsageError if shapes do not fit.
std::vector<LayerDiagonal> hesscale(const std::vector<SequentialLayer>& layers,
                                    const torch::Tensor& x, const OutputDerivatives& derivatives,
                                    bool gauss_newton = false);

}  // namespace curvq
