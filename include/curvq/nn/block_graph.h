// A decoder block's graph with a handle on every linear layer's input and output.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq {

// out = block.forward(x), differentiable in `x` and in `outputs`; gradients in these are what they
// are for: torch::autograd::grad({out}, {x, outputs...}, {gradient in out}). Weights get none.
struct BlockGraph {
  torch::Tensor x;  // [n, t, hidden], a leaf
  // Of each group of block_linears(), detached: [n, t, in].
  std::vector<torch::Tensor> inputs;
  // Of each group, the tokens that come to it (see BlockState); undefined: all.
  std::vector<torch::Tensor> tokens;
  // In the order of block_linears(), over all groups: a leaf [n, t, out] that is added to the
  // layer's product with its weight, a bias for every token. Its gradient is that in the layer's
  // output.
  std::vector<torch::Tensor> outputs;
  torch::Tensor out;  // [n, t, hidden]
};

// The block's linear layers must not be packed.
BlockGraph block_graph(const DecoderBlock& block, const torch::Tensor& x);

// The same without the products of linear layers, known from forward_with_products(), which spares
// most of the work; `out` then holds no values, only gradients go through it.
BlockGraph block_graph(const DecoderBlock& block, const torch::Tensor& x,
                       const std::vector<torch::Tensor>& products);

// Whether gradients in a block depend on its last layer's output, as they do where a norm follows
// or a share of an expert's that the router gives.
bool needs_last_product(const DecoderConfig& config);

// block.forward(x); `products` become x W^T of all linear layers, but the last unless
// needs_last_product(), in the order of block_linears().
torch::Tensor forward_with_products(const DecoderBlock& block, const torch::Tensor& x,
                                    std::vector<torch::Tensor>& products);

}  // namespace curvq
