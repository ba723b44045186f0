#include "curvq/nn/torch_tensor.h"

#include <torch/torch.h>

#include <utility>

#include "curvq/core/error.h"

namespace curvq {
namespace {

constexpr std::pair<DType, torch::ScalarType> kTypes[] = {
    {DType::kF64, torch::kFloat64}, {DType::kF32, torch::kFloat32},
    {DType::kF16, torch::kFloat16}, {DType::kBF16, torch::kBFloat16},
    {DType::kI64, torch::kInt64},   {DType::kI32, torch::kInt32},
    {DType::kI16, torch::kInt16},   {DType::kI8, torch::kInt8},
    {DType::kU8, torch::kUInt8},    {DType::kBool, torch::kBool},
};

torch::ScalarType scalar_type(const TensorView& tensor) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (dtype == tensor.dtype) return scalar;
  }
  throw UnsupportedError(tensor.file + ": " + tensor.name + " is " +
                         std::string(dtype_name(tensor.dtype)) +
                         ", which tensors to compute with cannot be");
}

}  // namespace

torch::Tensor to_torch(const TensorView& tensor) {
  torch::Tensor out = torch::empty(tensor.shape, scalar_type(tensor));
  tensor.read(0, tensor.num_elements(), out.data_ptr());
  return out;
}

TensorView view_of(const std::string& name, const torch::Tensor& tensor, const std::string& file) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (scalar != tensor.scalar_type()) continue;
    TensorView view;
    view.name = name;
    view.dtype = dtype;
    view.shape = tensor.sizes().vec();
    view.data = static_cast<const std::byte*>(tensor.const_data_ptr());
    view.file = file;
    return view;
  }
  throw UnsupportedError(file + ": " + name + " is " + torch::toString(tensor.scalar_type()) +
                         ", which safetensors files do not hold");
}

}  // namespace curvq
