#include "curvq/curvature/hesscale.h"

#include <string>
#include <utility>

#include "curvq/core/error.h"

namespace curvq {
namespace {

torch::Tensor forward(const SequentialLayer& layer, const torch::Tensor& x) {
  switch (layer.kind) {
    case SequentialKind::kLinear:
      return torch::linear(x, layer.weight, layer.bias);
    case SequentialKind::kConvolution: {
      const Convolution& c = layer.convolution;
      return torch::conv2d(x, layer.weight, layer.bias, c.stride, c.padding, c.dilation);
    }
    case SequentialKind::kTanh:
      return torch::tanh(x);
    case SequentialKind::kRelu:
      return torch::relu(x);
    case SequentialKind::kSigmoid:
      return torch::sigmoid(x);
    case SequentialKind::kFlatten:
      return x.flatten(1);
  }
  throw UsageError("unknown kind of layer");
}

// s' and s'' at the layer's input.
std::pair<torch::Tensor, torch::Tensor> activation_derivatives(SequentialKind kind,
                                                               const torch::Tensor& x) {
  if (kind == SequentialKind::kRelu) return {(x > 0).to(x.dtype()), torch::zeros_like(x)};
  if (kind == SequentialKind::kTanh) {
    const torch::Tensor s = torch::tanh(x), first = 1 - s * s;
    return {first, -2 * s * first};
  }
  const torch::Tensor s = torch::sigmoid(x), first = s * (1 - s);
  return {first, first * (1 - 2 * s)};
}

// The transpose of a convolution with `weight`, applied to y [n, out, h, w] -> shape of its input.
torch::Tensor convolution_transposed(const Convolution& c, const torch::Tensor& weight,
                                     const torch::Tensor& y, const torch::Tensor& input) {
  const torch::Tensor columns = weight.flatten(1).t().matmul(y.flatten(2));  // [n, c k, R]
  return torch::col2im(columns, {input.size(2), input.size(3)}, c.kernel, c.dilation, c.padding,
                       c.stride);
}

}  // namespace

std::vector<torch::Tensor> sequential_activations(const std::vector<SequentialLayer>& layers,
                                                  const torch::Tensor& x) {
  std::vector<torch::Tensor> activations{x};
  for (const SequentialLayer& layer : layers)
    activations.push_back(forward(layer, activations.back()));
  return activations;
}

OutputDerivatives cross_entropy_derivatives(const torch::Tensor& logits, const torch::Tensor& y) {
  const torch::Tensor p = torch::softmax(logits, -1);
  return {p - torch::one_hot(y, p.size(-1)).to(p.dtype()), p - p * p};
}

OutputDerivatives squared_error_derivatives(const torch::Tensor& outputs, const torch::Tensor& y) {
  return {outputs - y, torch::ones_like(outputs)};
}

std::vector<LayerDiagonal> hesscale(const std::vector<SequentialLayer>& layers,
                                    const torch::Tensor& x, const OutputDerivatives& derivatives,
                                    bool gauss_newton) {
  const std::vector<torch::Tensor> activations = sequential_activations(layers, x);
  if (derivatives.first.sizes() != activations.back().sizes() ||
      derivatives.second.sizes() != activations.back().sizes())
    throw UsageError("the output derivatives do not have the shape of the network's outputs");
  const double samples = static_cast<double>(x.size(0));
  torch::Tensor g = derivatives.first, d = derivatives.second;
  std::vector<LayerDiagonal> result(layers.size());
  for (size_t l = layers.size(); l-- > 0;) {
    const SequentialLayer& layer = layers[l];
    const torch::Tensor& in = activations[l];
    switch (layer.kind) {
      case SequentialKind::kLinear:
        result[l].weight = d.t().matmul(in.square()) / samples;
        if (layer.bias.defined()) result[l].bias = d.sum(0) / samples;
        g = g.matmul(layer.weight);
        d = d.matmul(layer.weight.square());
        break;
      case SequentialKind::kConvolution: {
        const torch::Tensor columns = unfold_inputs(in, layer.convolution);  // [n, R, c k]
        result[l].weight =
            (d.flatten(2).matmul(columns.square()).sum(0) / samples).view(layer.weight.sizes());
        if (layer.bias.defined()) result[l].bias = d.sum({0, 2, 3}) / samples;
        g = convolution_transposed(layer.convolution, layer.weight, g, in);
        d = convolution_transposed(layer.convolution, layer.weight.square(), d, in);
        break;
      }
      case SequentialKind::kFlatten:
        g = g.view(in.sizes());
        d = d.view(in.sizes());
        break;
      default: {
        const auto [first, second] = activation_derivatives(layer.kind, in);
        d = first.square() * d;
        if (!gauss_newton) d = d + second * g;
        g = first * g;
      }
    }
  }
  return result;
}

}  // namespace curvq
