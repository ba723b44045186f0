#include "curvq/curvature/model.h"

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <set>
#include <utility>

#include "curvq/core/error.h"
#include "curvq/nn/differentiable_decoder.h"
#include "curvq/nn/script_model.h"

namespace curvq {
namespace {

// Whether forward takes the targets too.
bool takes_targets(const torch::jit::Module& module, const std::string& path) {
  const auto method = module.find_method("forward");
  const size_t arguments = method ? method->function().getSchema().arguments().size() : 0;
  if (arguments == 2 || arguments == 3) return arguments == 3;  // the first is self
  throw FormatError(path + ": forward must take x, or x and y");
}

}  // namespace

Model load_torchscript(const std::string& path, torch::optional<torch::ScalarType> dtype) {
  const auto module = load_script_module(path);
  const bool with_targets = takes_targets(*module, path);
  module->eval();
  std::set<torch::ScalarType> dtypes;
  for (const torch::Tensor& parameter : module->parameters())
    dtypes.insert(parameter.scalar_type());
  if (dtypes.empty()) throw FormatError(path + ": the module has no parameters");
  if (!dtype && dtypes.size() > 1)
    throw FormatError(path + ": parameters have several dtypes; choose one with --dtype");
  const torch::ScalarType chosen = dtype.value_or(*dtypes.begin());
  module->to(chosen);
  Model model{path, {}, nullptr};
  for (const auto& parameter : module->named_parameters()) {
    parameter.value.requires_grad_();
    model.parameters.push_back({parameter.name, parameter.value});
  }
  model.forward = [module, chosen, with_targets](const Batch& batch) {
    // Fused and specialised graphs need not have second derivatives.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    const auto cast = [&](const torch::Tensor& t) {
      return t.is_floating_point() ? t.to(chosen) : t;
    };
    std::vector<c10::IValue> arguments = {cast(batch.inputs)};
    if (with_targets) arguments.push_back(cast(batch.targets));
    const c10::IValue out = module->forward(arguments);
    if (!out.isTensor()) throw UsageError("forward of the TorchScript module returns no tensor");
    return out.toTensor();
  };
  return model;
}

Model load_decoder(const DecoderModel& model, const DecoderOptions& options) {
  const auto decoder =
      std::make_shared<DifferentiableDecoder>(model, options.dtype, options.checkpoint);
  Model out{model.checkpoint().path(), {}, nullptr};
  for (const auto& [name, value] : decoder->parameters()) out.parameters.push_back({name, value});
  out.forward = [decoder](const Batch& batch) { return decoder->forward(batch.inputs); };
  return out;
}

}  // namespace curvq
