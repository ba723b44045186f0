// gpt_oss keeps the matrices of all experts of a block in one tensor, plain
//
//   NAME.experts.gate_up_proj  [experts, in, 2 out], columns of gate and up in turns, and its _bias
//                              [experts, 2 out]
//   NAME.experts.down_proj     [experts, in, out], _bias [experts, out]
//
// or as MXFP4 (OCP Microscaling Formats 1.0), rows in turns: _blocks U8 [experts, out, in / 32,
// 16], two codes a byte, the first in the low bits, and _scales U8 [experts, out, in / 32], E8M0.
//
// What else has experts keeps a matrix of each: NAME.experts.3.gate_proj.weight [out, in], its
// .bias, up_proj, down_proj; packed ones in compressed-tensors' mxfp4-pack-quantized layout, whose
// bytes are the same. These are views of the first in the form of the second.
#pragma once

#include <vector>

#include "curvq/io/json.h"
#include "curvq/io/tensor.h"

namespace curvq {

// Whether a config.json is that of a model with such tensors.
bool has_fused_experts(const Json& config);

// What the experts' parts of `tensor` are called and hold, valid as long as the tensor is; empty
// for tensors that are not of this form. Throws FormatError naming the tensor for a wrong rank or
// dtype, or an odd number of rows of gate and up.
std::vector<TensorView> expert_views(const TensorView& tensor);

}  // namespace curvq
