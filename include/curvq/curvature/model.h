// What can be analysed: parameters and a differentiable function of them, wherever they come from.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq {

// Samples: the first dimension of `inputs` and of `targets` counts them.
struct Batch {
  torch::Tensor inputs, targets;
};

struct NamedTensor {
  std::string name;
  torch::Tensor value;
};

// A function of a batch's inputs and of parameters, which are leaves that require gradients, all of
// one dtype (float32 or float64) and device. Copies share the parameters.
struct Model {
  std::string name;  // for messages
  std::vector<NamedTensor> parameters;
  // Outputs [n, ..., classes] for a batch of n samples. Must not depend on how samples are batched
  // (no batch normalisation in training mode), and give the same each time (no dropout).
  std::function<torch::Tensor(const Batch&)> forward;
};

// The trainable parameters of any module whose forward() takes and returns one tensor; shared, not
// copied. The module should be in evaluation mode.
template <typename Module>
Model model_of(std::shared_ptr<Module> module, std::string name = "module") {
  Model model{std::move(name), {}, nullptr};
  for (const auto& entry : module->named_parameters()) {
    if (entry.value().requires_grad()) model.parameters.push_back({entry.key(), entry.value()});
  }
  model.forward = [module](const Batch& batch) { return module->forward(batch.inputs); };
  return model;
}
template <typename Module>
Model model_of(torch::nn::ModuleHolder<Module> module, std::string name = "module") {
  return model_of(module.ptr(), std::move(name));
}

// A TorchScript file, on the CPU, in evaluation mode, all of its parameters trainable.
//   dtype  float32 or float64; by default that of the file
// forward(x) gives the outputs. A file whose forward takes (x, y) computes its own mean loss, which
// goes with loss_of_model(): only the Hessian is defined for it.
// Throws UsageError if there is no such file, FormatError if it is not TorchScript, has no
// parameters, parameters of several dtypes, or no forward of one or two tensors.
Model load_torchscript(const std::string& path, torch::optional<torch::ScalarType> dtype = {});

// A decoder-only transformer; see DifferentiableDecoder. The inputs are token ids [n, t], the
// outputs logits [n, t, vocab].
struct DecoderOptions {
  torch::ScalarType dtype = torch::kFloat32;
  bool checkpoint =
      false;  // compute each block again instead of keeping it: less memory, more time
};
Model load_decoder(const DecoderModel& model, const DecoderOptions& options = {});

}  // namespace curvq
