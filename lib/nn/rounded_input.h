// What a quantized layer makes of its inputs ahead of the product; see
// curvq/formats/input_rounding.h.
#pragma once

#include "curvq/nn/decoder.h"

namespace curvq::internal {

// x [..., in] rounded as `linear` says, or x itself. The gradient in x is that of the result.
torch::Tensor rounded_input(const Linear& linear, const torch::Tensor& x);

// Whether both make the same of the same inputs.
bool round_alike(const Linear& a, const Linear& b);

}  // namespace curvq::internal
