#include "curvq/nn/block_graph.h"

#include <cmath>

namespace curvq {

BlockGraph block_graph(const DecoderBlock& block, const torch::Tensor& x) {
  return block_graph(block, x, {});
}

BlockGraph block_graph(const DecoderBlock& block, const torch::Tensor& x,
                       const std::vector<torch::Tensor>& products) {
  torch::AutoGradMode enable(true);
  BlockGraph graph;
  graph.x = x.detach().clone().requires_grad_();
  DecoderBlock b = block;
  for (const auto& group : b.linears()) {
    for (Linear* linear : group) {
      const std::vector<int64_t> shape = {x.size(0), x.size(1), linear->weight.size(0)};
      torch::Tensor bias = torch::zeros(shape, x.options());
      if (linear->bias.defined()) bias += linear->bias;
      linear->bias = bias.requires_grad_();
      if (!products.empty()) {
        const bool known = graph.outputs.size() < products.size();
        linear->product = known ? products[graph.outputs.size()]
                                : torch::full({1}, std::nan(""), x.options()).expand(shape);
      }
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

torch::Tensor forward_with_products(const DecoderBlock& block, const torch::Tensor& x,
                                    std::vector<torch::Tensor>& products) {
  torch::AutoGradMode keep_values(true);  // without gradients they are overwritten in place
  products.clear();
  DecoderBlock b = block;
  const auto find = [&](const std::vector<Linear*>& linears, const torch::Tensor& input) {
    for (Linear* linear : linears) {
      linear->product = torch::linear(input, linear->weight);
      products.push_back(linear->product);
    }
    return input;
  };
  const torch::Tensor mixed = b.o_input(find({&b.q, &b.k, &b.v}, b.qkv_input(x)));
  const torch::Tensor attended = x + b.o.forward(find({&b.o}, mixed));
  const torch::Tensor hidden = b.down_input(find({&b.gate, &b.up}, b.gate_up_input(attended)));
  return attended + b.down.forward(hidden);
}

}  // namespace curvq
