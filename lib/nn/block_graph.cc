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
  BlockState state;
  state.x = graph.x;
  for (size_t group = 0; group <= b.num_groups(); ++group) {
    b.advance(group, state);
    if (group == b.num_groups()) break;
    graph.inputs.push_back(state.input.detach());
    graph.tokens.push_back(state.tokens);
  }
  graph.out = state.x;
  return graph;
}

namespace {

// input W^T, zeros for tokens that do not come to the layer.
torch::Tensor product_of(const BlockState& state, const torch::Tensor& weight) {
  if (!state.tokens.defined()) return torch::linear(state.input, weight);
  const torch::Tensor rows = torch::linear(rows_of_tokens(state.input, state.tokens), weight);
  return spread_rows(rows, state.tokens, state.input.size(0), state.input.size(1));
}

}  // namespace

bool needs_last_product(const DecoderConfig& config) {
  return !config.names.post_mlp_norm.empty() || config.num_experts > 0;
}

torch::Tensor forward_with_products(const DecoderBlock& block, const torch::Tensor& x,
                                    std::vector<torch::Tensor>& products) {
  torch::AutoGradMode keep_values(true);  // without gradients they are overwritten in place
  products.clear();
  DecoderBlock b = block;
  BlockState state;
  state.x = x;
  const auto groups = b.linears();
  for (size_t group = 0; group <= groups.size(); ++group) {
    b.advance(group, state);
    if (group == groups.size()) break;
    if (group + 1 == groups.size() && !needs_last_product(b.config)) continue;
    for (Linear* linear : groups[group]) {
      linear->product = product_of(state, linear->weight);
      products.push_back(linear->product);
    }
  }
  return state.x;
}

}  // namespace curvq
