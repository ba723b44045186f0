// Of a mixture of experts, each on the tokens that come to it.
#include <torch/torch.h>

#include <algorithm>

#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

// Tokens with a share of one expert.
torch::Tensor tokens_of(const torch::Tensor& shares, size_t expert) {
  const torch::Tensor share = shares.detach().select(-1, static_cast<int64_t>(expert));
  return share.flatten().nonzero().squeeze(-1);
}

// The same for all experts at once.
std::vector<torch::Tensor> tokens_by_expert(const torch::Tensor& shares) {
  const int64_t experts = shares.size(-1);
  const torch::Tensor pairs = shares.detach().flatten(0, 1).t().nonzero();  // expert, token
  const torch::Tensor counts = torch::bincount(pairs.select(1, 0), {}, experts);
  const int64_t* sizes = counts.data_ptr<int64_t>();
  return pairs.select(1, 1).contiguous().split_with_sizes(
      std::vector<int64_t>(sizes, sizes + experts));
}

// Without gradients there is nothing to do then; with them, weights want gradients of zero.
bool is_unused(const torch::Tensor& tokens) {
  return tokens.size(0) == 0 && !at::GradMode::is_enabled();
}

// Whether a layer's bias or product is known token by token, as in a BlockGraph.
bool is_by_token(const Linear& linear) {
  return linear.product.defined() || (linear.bias.defined() && linear.bias.dim() > 1);
}

Linear linear_of_tokens(const Linear& linear, const torch::Tensor& tokens) {
  Linear out = linear;
  if (out.product.defined()) out.product = rows_of_tokens(out.product, tokens);
  if (out.bias.defined() && out.bias.dim() > 1) out.bias = rows_of_tokens(out.bias, tokens);
  return out;
}

}  // namespace

torch::Tensor rows_of_tokens(const torch::Tensor& x, const torch::Tensor& tokens) {
  return x.flatten(0, 1).index_select(0, tokens);
}

torch::Tensor spread_rows(const torch::Tensor& rows, const torch::Tensor& tokens, int64_t n,
                          int64_t t) {
  const torch::Tensor all = torch::zeros({n * t, rows.size(-1)}, rows.options());
  return all.index_copy_(0, tokens, rows).view({n, t, -1});
}

// [n, t, experts]: an expert's share of a token, 0 if it is not chosen.
torch::Tensor DecoderBlock::shares(const torch::Tensor& normed) const {
  const torch::Tensor all = torch::softmax(torch::linear(normed, router, router_bias), -1);
  auto [largest, experts] = all.topk(config.experts_per_token, -1);
  if (config.normalized_routes) largest = largest / largest.sum(-1, true);
  return torch::zeros_like(all).scatter(-1, experts, largest);
}

torch::Tensor DecoderBlock::expert_activated(size_t expert, const torch::Tensor& rows,
                                             const torch::Tensor& tokens) const {
  if (is_unused(tokens)) return torch::empty({0, config.intermediate_size}, rows.options());
  const std::vector<Linear>& gate_up = mlps[expert].gate_up;
  if (std::none_of(gate_up.begin(), gate_up.end(), is_by_token)) return activated(gate_up, rows);
  std::vector<Linear> of_tokens;
  for (const Linear& linear : gate_up) of_tokens.push_back(linear_of_tokens(linear, tokens));
  return activated(of_tokens, rows);
}

void DecoderBlock::add_expert(size_t expert, const torch::Tensor& rows, const torch::Tensor& tokens,
                              const torch::Tensor& shares, torch::Tensor sum) const {
  if (is_unused(tokens)) return;
  const Linear& down = mlps[expert].down;
  const torch::Tensor out =
      is_by_token(down) ? linear_of_tokens(down, tokens).forward(rows) : down.forward(rows);
  const torch::Tensor share =
      rows_of_tokens(shares, tokens).narrow(-1, static_cast<int64_t>(expert), 1);
  sum.index_add_(0, tokens, out * share);
}

void DecoderBlock::add_experts(BlockState& s) const {
  const torch::Tensor out = post_mlp_norm.forward(s.sum);
  s.x = s.x + (config.residual_scale == 1 ? out : out * config.residual_scale);
  s.input = s.sum = s.shares = s.tokens = torch::Tensor();
}

void DecoderBlock::advance_experts(size_t group, BlockState& s) const {
  const int64_t n = s.x.size(0), t = s.x.size(1);
  const size_t expert = (group - 2) / 2;
  if (group == 2) {
    s.shares = shares(mlp_norm.forward(s.x));
    s.sum = torch::zeros_like(s.x);
  }
  if (group % 2 == 0 && expert > 0) {
    const torch::Tensor tokens = tokens_of(s.shares, expert - 1);
    add_expert(expert - 1, rows_of_tokens(s.input, tokens), tokens, s.shares, s.sum.flatten(0, 1));
  }
  if (group == num_groups()) return add_experts(s);
  s.tokens = tokens_of(s.shares, expert);
  const torch::Tensor rows =
      group % 2 == 0 ? mlp_norm.forward(rows_of_tokens(s.x, s.tokens))
                     : expert_activated(expert, rows_of_tokens(s.input, s.tokens), s.tokens);
  s.input = spread_rows(rows, s.tokens, n, t);
}

void DecoderBlock::run_experts(BlockState& s) const {
  const torch::Tensor normed = mlp_norm.forward(s.x), routes = shares(normed);
  const torch::Tensor sum = torch::zeros({s.x.size(0) * s.x.size(1), s.x.size(2)}, s.x.options());
  const std::vector<torch::Tensor> tokens = tokens_by_expert(routes);
  for (size_t expert = 0; expert < tokens.size(); ++expert) {
    const torch::Tensor rows = rows_of_tokens(normed, tokens[expert]);
    add_expert(expert, expert_activated(expert, rows, tokens[expert]), tokens[expert], routes, sum);
  }
  s.sum = sum.view_as(s.x);
  add_experts(s);
}

}  // namespace curvq
