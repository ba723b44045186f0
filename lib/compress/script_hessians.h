// Second moments of the inputs of a TorchScript module's layers.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "curvq/nn/script_model.h"

namespace curvq::internal {

// Samples that go through the module together.
constexpr int64_t kScriptChunk = 256;

// The first samples of `x` go through the module: names of `layers` in the order of their first
// calls, then those that were not called.
std::vector<std::string> call_order(const ScriptModel& model,
                                    const std::vector<const ScriptLayer*>& layers,
                                    const torch::Tensor& x);

// 2/N sum r r^T over all rows r of the inputs of each layer, by name; zeros for layers that nothing
// came to. x goes through the module once. Throws NumericalError naming the layer.
std::map<std::string, std::vector<float>> script_hessians(
    const ScriptModel& model, const std::vector<const ScriptLayer*>& layers,
    const torch::Tensor& x);

}  // namespace curvq::internal
