#include "curvature/layer_capture.h"

#include <ATen/record_function.h>

#include <string_view>

namespace curvq {
namespace {

thread_local LayerCapture* active = nullptr;

// What an operator is about to be given.
struct PendingUse : at::ObserverContext {
  LayerUse use;
};

// Of a 1-D convolution, which is one of images of height 1: `other` and its one value.
std::array<int64_t, 2> pair_of(const c10::IValue& list, bool one_dimension, int64_t other) {
  const std::vector<int64_t> values = list.toIntVector();
  return {one_dimension ? other : values.front(), values.back()};
}

torch::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : torch::Tensor();
}

// What the operator was called with: the last of `inputs`, which from TorchScript are all that is
// on the interpreter's stack. So are the outputs.
c10::ArrayRef<const c10::IValue> arguments(const at::RecordFunction& fn) {
  const auto schema = fn.operator_schema();
  const size_t count = schema ? schema->arguments().size() : 0;
  return count <= fn.inputs().size() ? fn.inputs().slice(fn.inputs().size() - count, count)
                                     : fn.inputs();
}

}  // namespace

struct LayerCapture::Callbacks {
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& fn) {
    if (active == nullptr || active->within_) return nullptr;
    const std::string_view name = fn.name();
    const bool linear = name == "aten::linear", addmm = name == "aten::addmm",
               matmul = name == "aten::matmul" || name == "aten::mm",
               conv = name == "aten::conv1d" || name == "aten::conv2d",
               general = name == "aten::_convolution" || name == "aten::convolution";
    if (!linear && !addmm && !matmul && !conv && !general) return nullptr;
    const auto inputs = arguments(fn);
    std::unique_ptr<PendingUse> pending;
    if (linear) {  // (input, weight, bias)
      pending = use(inputs[0], inputs[1].toTensor(), inputs[2]);
    } else if (addmm) {  // (bias, input, transposed weight, ...)
      if (inputs[2].toTensor().dim() == 2)
        pending = use(inputs[1], inputs[2].toTensor().t(), inputs[0]);
    } else if (matmul) {  // (input, transposed weight)
      if (inputs[1].toTensor().dim() == 2)
        pending = use(inputs[0], inputs[1].toTensor().t(), c10::IValue());
    } else if (conv) {  // (input, weight, bias, stride, padding, dilation, groups)
      if (inputs[4].isIntList() && inputs[6].toInt() == 1) pending = convolution(inputs);
    } else {  // (..., dilation, transposed, output_padding, groups, ...)
      if (!inputs[6].toBool() && inputs[8].toInt() == 1) pending = convolution(inputs);
    }
    if (pending) active->within_ = true;
    return pending;
  }

  static void end(const at::RecordFunction& fn, at::ObserverContext* context) {
    auto* pending = static_cast<PendingUse*>(context);
    if (pending == nullptr || active == nullptr) return;
    active->within_ = false;
    if (fn.outputs().empty() || !fn.outputs().back().isTensor()) return;
    pending->use.output = fn.outputs().back().toTensor();
    active->uses_.push_back(std::move(pending->use));
  }

  static std::unique_ptr<PendingUse> use(const c10::IValue& input, const torch::Tensor& weight,
                                         const c10::IValue& bias) {
    const NamedTensor* parameter = active->parameter_of(weight);
    if (parameter == nullptr) return nullptr;
    auto pending = std::make_unique<PendingUse>();
    pending->use.name = parameter->name.substr(0, parameter->name.rfind('.'));
    const torch::Tensor added = tensor_or_none(bias);
    pending->use.has_bias = added.defined() && active->parameter_of(added) != nullptr;
    pending->use.inputs = input.toTensor().detach();
    return pending;
  }

  static std::unique_ptr<PendingUse> convolution(c10::ArrayRef<const c10::IValue> inputs) {
    const torch::Tensor weight = inputs[1].toTensor();
    const int64_t dimensions = weight.dim();
    if ((dimensions != 3 && dimensions != 4) || inputs[0].toTensor().dim() != dimensions)
      return nullptr;
    auto pending = use(inputs[0], weight, inputs[2]);
    if (pending) {
      const bool flat = dimensions == 3;
      if (flat) pending->use.inputs = pending->use.inputs.unsqueeze(2);
      pending->use.convolution = Convolution{{flat ? 1 : weight.size(2), weight.size(-1)},
                                             pair_of(inputs[3], flat, 1),
                                             pair_of(inputs[4], flat, 0),
                                             pair_of(inputs[5], flat, 1)};
    }
    return pending;
  }
};

LayerCapture::LayerCapture(const std::vector<NamedTensor>& parameters) : parameters_(parameters) {
  active = this;
  handle_ =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&Callbacks::start, &Callbacks::end)
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}

LayerCapture::~LayerCapture() {
  at::removeCallback(handle_);
  active = nullptr;
}

const NamedTensor* LayerCapture::parameter_of(const torch::Tensor& tensor) const {
  for (const NamedTensor& parameter : parameters_) {
    const torch::Tensor& value = parameter.value;
    if (value.data_ptr() == tensor.data_ptr() && value.sizes() == tensor.sizes() &&
        value.strides() == tensor.strides())
      return &parameter;
  }
  return nullptr;
}

}  // namespace curvq
