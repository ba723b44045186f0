#include "nn/rounded_input.h"

#include "curvq/formats/input_rounding.h"

namespace curvq::internal {
namespace {

struct RoundedInput : torch::autograd::Function<RoundedInput> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x,
                               int64_t format, double scale) {
    const torch::Tensor values = x.to(torch::kFloat32).contiguous();
    torch::Tensor out = torch::empty_like(values);
    const int64_t cols = values.size(-1), rows = cols > 0 ? values.numel() / cols : 0;
    round_inputs(static_cast<InputFormat>(format), static_cast<float>(scale),
                 values.data_ptr<float>(), rows, cols, out.data_ptr<float>());
    return out.to(x.scalar_type());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor rounded_input(const Linear& linear, const torch::Tensor& x) {
  if (linear.inputs == InputFormat::kNone) return x;
  return RoundedInput::apply(x, static_cast<int64_t>(linear.inputs),
                             static_cast<double>(linear.input_scale));
}

bool round_alike(const Linear& a, const Linear& b) {
  return a.inputs == b.inputs && a.input_scale == b.input_scale;
}

}  // namespace curvq::internal
