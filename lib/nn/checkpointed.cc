#include "curvq/nn/checkpointed.h"

#include <torch/torch.h>

namespace curvq {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Lets an AutogradContext hold a function and the inputs whose gradients are wanted.
struct FunctionHolder : torch::CustomClassHolder {
  FunctionHolder(TensorFunction f, std::vector<size_t> w)
      : fn(std::move(f)), wanted(std::move(w)) {}
  TensorFunction fn;
  std::vector<size_t> wanted;
};
using Holder = c10::intrusive_ptr<FunctionHolder>;

void keep(AutogradContext* ctx, const Holder& holder) {
  ctx->saved_data["fn"] = c10::IValue::make_capsule(holder);
}

Holder kept(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<FunctionHolder>(ctx->saved_data["fn"].toCapsule());
}

// Leaves of a graph of its own, which require gradients where `inputs` do.
variable_list detached(const variable_list& inputs) {
  variable_list leaves;
  for (const torch::Tensor& input : inputs)
    leaves.push_back(input.detach().requires_grad_(input.requires_grad()));
  return leaves;
}

// Lists go to apply() as at::TensorList: in a std::vector it sees no tensors.

// (inputs, gy) -> gy^T d fn / d inputs[wanted].
struct CheckpointedGradient : torch::autograd::Function<CheckpointedGradient> {
  static variable_list forward(AutogradContext* ctx, const Holder& holder, const torch::Tensor& gy,
                               at::TensorList inputs) {
    keep(ctx, holder);
    ctx->set_materialize_grads(false);
    variable_list saved = {gy};
    saved.insert(saved.end(), inputs.begin(), inputs.end());
    ctx->save_for_backward(saved);
    torch::AutoGradMode enable(true);
    return gradient(*holder, gy.detach(), detached(inputs.vec()), /*create_graph=*/false);
  }

  static variable_list backward(AutogradContext* ctx, variable_list seeds) {
    TORCH_CHECK(!torch::GradMode::is_enabled(), "checkpointed functions have two derivatives");
    const variable_list saved = ctx->get_saved_variables();
    torch::AutoGradMode enable(true);
    const variable_list leaves = detached(saved);  // gy, then the inputs
    const variable_list gradients =
        gradient(*kept(ctx), leaves[0], {leaves.begin() + 1, leaves.end()}, /*create_graph=*/true);
    variable_list outputs, output_seeds, sources;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!seeds[i].defined() || !gradients[i].requires_grad()) continue;
      outputs.push_back(gradients[i]);
      output_seeds.push_back(seeds[i]);
    }
    std::vector<size_t> source_of;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].requires_grad() || !ctx->needs_input_grad(i)) continue;
      sources.push_back(leaves[i]);
      source_of.push_back(i);
    }
    variable_list result(1 + leaves.size());  // the holder has none
    if (outputs.empty() || sources.empty()) return result;
    const variable_list second =
        torch::autograd::grad(outputs, sources, output_seeds, false, false, true);
    for (size_t i = 0; i < second.size(); ++i) result[1 + source_of[i]] = second[i];
    return result;
  }

  static variable_list gradient(const FunctionHolder& holder, const torch::Tensor& gy,
                                const variable_list& leaves, bool create_graph) {
    variable_list sources;
    for (const size_t i : holder.wanted) sources.push_back(leaves[i]);
    variable_list gradients =
        torch::autograd::grad({holder.fn(leaves)}, sources, {gy}, create_graph, create_graph, true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = torch::zeros_like(sources[i]);
    }
    return gradients;
  }
};

struct CheckpointedFunction : torch::autograd::Function<CheckpointedFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const Holder& holder, at::TensorList inputs) {
    keep(ctx, holder);
    ctx->save_for_backward(inputs.vec());
    return holder->fn(inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, variable_list seeds) {
    const variable_list inputs = ctx->get_saved_variables();
    std::vector<size_t> wanted;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].requires_grad() && ctx->needs_input_grad(i)) wanted.push_back(i);
    }
    variable_list result(1 + inputs.size());  // the holder has none
    if (wanted.empty()) return result;
    const variable_list gradients =
        CheckpointedGradient::apply(c10::make_intrusive<FunctionHolder>(kept(ctx)->fn, wanted),
                                    seeds[0], at::TensorList(inputs));
    for (size_t i = 0; i < wanted.size(); ++i) result[1 + wanted[i]] = gradients[i];
    return result;
  }
};

}  // namespace

torch::Tensor checkpointed(TensorFunction fn, const std::vector<torch::Tensor>& inputs) {
  return CheckpointedFunction::apply(
      c10::make_intrusive<FunctionHolder>(std::move(fn), std::vector<size_t>{}),
      at::TensorList(inputs));
}

}  // namespace curvq
