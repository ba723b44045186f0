// Causal attention without a matrix of scores, where no gradient is wanted.
#pragma once

#include <torch/torch.h>

namespace curvq::internal {

// Whether tiled_attention() can take the place of LibTorch's.
bool can_tile_attention(const torch::Tensor& queries);

// queries [n, heads, t, head_dim], keys and values [n, kv_heads, length, head_dim], float32, of
// which the queries are the last t tokens; returns [n, t, heads * head_dim].
torch::Tensor tiled_attention(const torch::Tensor& queries, const torch::Tensor& keys,
                              const torch::Tensor& values);

}  // namespace curvq::internal
