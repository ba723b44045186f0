#include "curvq/nn/block_graph.h"

namespace curvq {

BlockGraph block_graph(const DecoderBlock& block, const torch::Tensor& x) {
  torch::AutoGradMode enable(true);
  BlockGraph graph;
  graph.x = x.detach().clone().requires_grad_();
  DecoderBlock b = block;
  for (const auto& group : b.linears()) {
    for (Linear* linear : group) {
      torch::Tensor bias =
          torch::zeros({x.size(0), x.size(1), linear->weight.size(0)}, x.options());
      if (linear->bias.defined()) bias += linear->bias;
      linear->bias = bias.requires_grad_();
      graph.outputs.push_back(linear->bias);
    }
  }
  const auto input = [&](const torch::Tensor& of_group) {
    graph.inputs.push_back(of_group.detach());
    return of_group;
  };
  const torch::Tensor mixed = input(b.o_input(input(b.qkv_input(graph.x))));
  const torch::Tensor attended = graph.x + b.o.forward(mixed);
  const torch::Tensor hidden = input(b.down_input(input(b.gate_up_input(attended))));
  graph.out = attended + b.down.forward(hidden);
  return graph;
}

}  // namespace curvq
