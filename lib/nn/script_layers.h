// What multiplies with a module's tensors in the code of its forward().
#pragma once

#include <torch/script.h>

#include <functional>
#include <string>
#include <vector>

#include "curvq/nn/script_model.h"

namespace curvq::internal {

// The tensor that an attribute ("encoder.0.weight") stands for; nullptr if it is none.
using TensorOfAttribute = std::function<const ScriptTensor*(const std::string&)>;

std::vector<ScriptLayer> find_script_layers(const torch::jit::Module& module,
                                            const TensorOfAttribute& tensor_of);

}  // namespace curvq::internal
