#include "curvq/nn/torch_tensor.h"

#include <torch/torch.h>

#include "curvq/core/error.h"

namespace curvq {
namespace {

torch::ScalarType scalar_type(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::kF64:
      return torch::kFloat64;
    case DType::kF32:
      return torch::kFloat32;
    case DType::kF16:
      return torch::kFloat16;
    case DType::kBF16:
      return torch::kBFloat16;
    case DType::kI64:
      return torch::kInt64;
    case DType::kI32:
      return torch::kInt32;
    case DType::kI16:
      return torch::kInt16;
    case DType::kI8:
      return torch::kInt8;
    case DType::kU8:
      return torch::kUInt8;
    case DType::kBool:
      return torch::kBool;
    default:
      throw UnsupportedError(tensor.file + ": " + tensor.name + " is " +
                             std::string(dtype_name(tensor.dtype)) +
                             ", which tensors to compute with cannot be");
  }
}

}  // namespace

torch::Tensor to_torch(const TensorView& tensor) {
  torch::Tensor out = torch::empty(tensor.shape, scalar_type(tensor));
  tensor.read(0, tensor.num_elements(), out.data_ptr());
  return out;
}

}  // namespace curvq
