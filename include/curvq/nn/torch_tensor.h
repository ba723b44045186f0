// Tensors of files as LibTorch tensors.
#pragma once

#include <torch/torch.h>

#include "curvq/io/tensor.h"

namespace curvq {

// A copy in the same dtype and shape. Throws UnsupportedError for FP8, E8M0 and unsigned integers
// of more than 8 bits.
torch::Tensor to_torch(const TensorView& tensor);

}  // namespace curvq
