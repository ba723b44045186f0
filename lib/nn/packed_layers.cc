#include "nn/packed_layers.h"

#include <algorithm>

#include "curvq/kernels/linear.h"
#include "curvq/nn/decoder.h"
#include "nn/rounded_input.h"

namespace curvq::internal {
namespace {

// Layers that one LinearInput serves.
bool share_inputs(const Linear& a, const Linear& b) {
  const Scheme &s = a.prepacked->scheme(), &t = b.prepacked->scheme();
  return a.rounding == b.rounding && round_alike(a, b) &&
         a.prepacked->cols() == b.prepacked->cols() && s.element == t.element && s.bits == t.bits &&
         s.group_size == t.group_size && s.symmetric == t.symmetric;
}

LinearInput input_of(const Linear& linear, const torch::Tensor& given) {
  const torch::Tensor x = rounded_input(linear, given);
  const int64_t in = x.size(-1);
  const InputRounding rounding = has_input_rounding(linear.prepacked->scheme(), linear.rounding)
                                     ? linear.rounding
                                     : InputRounding::kNone;
  return LinearInput(*linear.prepacked, x.data_ptr<float>(), x.numel() / in, in, rounding);
}

torch::Tensor output_of(const Linear& linear, const torch::Tensor& x) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = linear.prepacked->rows();
  return torch::empty(shape, torch::kFloat32);
}

const float* values_or_null(const torch::Tensor& x) {
  return x.defined() ? x.data_ptr<float>() : nullptr;
}

}  // namespace

bool all_prepacked(const std::vector<Linear>& linears) {
  return std::all_of(linears.begin(), linears.end(),
                     [](const Linear& linear) { return linear.prepacked.has_value(); });
}

std::vector<torch::Tensor> forward_prepacked(const std::vector<const Linear*>& linears,
                                             const torch::Tensor& x) {
  const torch::Tensor values = x.contiguous();
  std::vector<torch::Tensor> outputs;
  std::optional<LinearInput> input;
  const Linear* made_for = nullptr;
  for (const Linear* linear : linears) {
    const PrepackedWeight& weight = *linear->prepacked;
    if (made_for == nullptr || !share_inputs(*made_for, *linear)) {
      input.emplace(input_of(*linear, values));
      made_for = linear;
    }
    outputs.push_back(output_of(*linear, values));
    LinearEnds ends;
    ends.bias = values_or_null(linear->bias);
    curvq::linear(weight, *input, outputs.back().data_ptr<float>(), weight.rows(), ends);
  }
  return outputs;
}

std::vector<torch::Tensor> forward_prepacked(const std::vector<Linear>& linears,
                                             const torch::Tensor& x) {
  std::vector<const Linear*> pointers;
  for (const Linear& linear : linears) pointers.push_back(&linear);
  return forward_prepacked(pointers, x);
}

torch::Tensor swiglu_prepacked(const Linear& gate, const Linear& up, const torch::Tensor& x) {
  if (!share_inputs(gate, up)) return {};
  const torch::Tensor values = x.contiguous();
  torch::Tensor out = output_of(gate, values);
  linear_swiglu(*gate.prepacked, *up.prepacked, input_of(gate, values), out.data_ptr<float>(),
                gate.prepacked->rows(), values_or_null(gate.bias), values_or_null(up.bias));
  return out;
}

torch::Tensor forward_onto(const Linear& linear, const torch::Tensor& x,
                           const torch::Tensor& residual) {
  if (!linear.prepacked) return residual + linear.forward(x);
  const torch::Tensor values = x.contiguous(), base = residual.contiguous();
  torch::Tensor out = output_of(linear, values);
  LinearEnds ends;
  ends.bias = values_or_null(linear.bias);
  ends.residual = base.data_ptr<float>();
  ends.ld_residual = linear.prepacked->rows();
  curvq::linear(*linear.prepacked, input_of(linear, values), out.data_ptr<float>(),
                ends.ld_residual, ends);
  return out;
}

}  // namespace curvq::internal
