// Tensors of files as LibTorch tensors, and the reverse.
#pragma once

#include <torch/torch.h>

#include <string>

#include "curvq/io/tensor.h"

namespace curvq {

// A copy in the same dtype and shape. Throws UnsupportedError for FP8, E8M0 and unsigned integers
// of more than 8 bits.
torch::Tensor to_torch(const TensorView& tensor);

// The elements of a contiguous tensor on the CPU, which must outlive the view; `file` is for
// messages. Throws UnsupportedError for dtypes that files do not hold (complex, quantized).
TensorView view_of(const std::string& name, const torch::Tensor& tensor, const std::string& file);

}  // namespace curvq
