#include "curvq/kernels/gemm.h"
#include "curvq/nn/decoder.h"
#include "nn/forward_together.h"
#include "nn/packed_layers.h"
#include "nn/rounded_input.h"

namespace curvq {
namespace {

// The product x W^T, known from before.
struct KnownProduct : torch::autograd::Function<KnownProduct> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor&,
                               const torch::Tensor& weight, const torch::Tensor& product) {
    context->save_for_backward({weight});
    return product.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].matmul(context->get_saved_variables()[0]), torch::Tensor(),
            torch::Tensor()};
  }
};

}  // namespace

torch::Tensor Linear::forward(const torch::Tensor& given) const {
  if (prepacked) return internal::forward_prepacked({this}, given)[0];
  const torch::Tensor x = internal::rounded_input(*this, given);
  if (product.defined()) {
    const torch::Tensor y = KnownProduct::apply(x, weight, product);
    return bias.defined() ? y + bias : y;
  }
  if (is_dense()) {
    if (!bias.defined()) return torch::linear(x, weight);
    // torch::linear takes a bias by token for one of a row where there is one token.
    return bias.dim() > 1 ? torch::linear(x, weight) + bias : torch::linear(x, weight, bias);
  }
  const torch::Tensor input = x.contiguous();
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  const int64_t in = shape.back(), rows = input.numel() / in;
  shape.back() = packed->rows();
  torch::Tensor out = torch::empty(shape, torch::kFloat32);
  packed_gemm(*packed, input.data_ptr<float>(), rows, in, out.data_ptr<float>(), packed->rows(),
              activations);
  if (bias.defined()) out += bias;
  return out;
}

std::vector<torch::Tensor> forward_together(const std::vector<Linear>& linears,
                                            const torch::Tensor& x) {
  if (internal::all_prepacked(linears)) return internal::forward_prepacked(linears, x);
  constexpr int64_t kWorthStacking = 64;
  std::vector<torch::Tensor> outputs, weights;
  for (const Linear& linear : linears) {
    if (linear.is_dense() && !linear.bias.defined() && !linear.product.defined() &&
        internal::round_alike(linear, linears[0]))
      weights.push_back(linear.weight);
  }
  if (linears.size() == 1 || weights.size() < linears.size() ||
      x.numel() / x.size(-1) < kWorthStacking) {
    for (const Linear& linear : linears) outputs.push_back(linear.forward(x));
    return outputs;
  }
  const torch::Tensor all =
      torch::linear(internal::rounded_input(linears[0], x), torch::cat(weights, 0));
  int64_t begin = 0;
  for (const torch::Tensor& weight : weights) {
    outputs.push_back(all.narrow(-1, begin, weight.size(0)));
    begin += weight.size(0);
  }
  return outputs;
}

}  // namespace curvq
