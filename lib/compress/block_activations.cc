#include "compress/block_activations.h"

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/kernels/gram.h"
#include "curvq/linalg/symmetric.h"

namespace curvq::internal {

BlockActivations::BlockActivations(torch::Tensor residual, Activations activations)
    : residual_(std::move(residual)), activations_(activations) {
  chunk_ = std::max<int64_t>(1, kChunkTokens / residual_.size(1));
}

void BlockActivations::advance(const DecoderBlock& block, size_t group) {
  const int64_t n = residual_.size(0), t = residual_.size(1);
  std::vector<torch::Tensor> tokens;
  for (int64_t i = 0; i < n; i += chunk_) {
    const int64_t count = std::min(chunk_, n - i);
    const BlockState state = step(block, group, i, count);
    if (state.tokens.defined()) tokens.push_back(state.tokens + i * t);
    const torch::Tensor& out = state.input;
    // Inputs as wide as the present ones replace them chunk by chunk.
    torch::Tensor& next = buffers_[out.size(-1)];
    if (!next.defined()) next = torch::empty({n, t, out.size(-1)}, torch::kFloat32);
    next.narrow(0, i, count).copy_(out);
    if (i + count == n) input_ = next;
  }
  tokens_ = tokens.empty() ? torch::Tensor() : torch::cat(tokens);
}

torch::Tensor BlockActivations::tokens(int64_t first, int64_t count) const {
  if (!tokens_.defined()) return {};
  const int64_t t = residual_.size(1);
  const auto inside = tokens_.ge(first * t).logical_and(tokens_.lt((first + count) * t));
  return tokens_.masked_select(inside) - first * t;
}

int64_t BlockActivations::num_tokens() const {
  return tokens_.defined() ? tokens_.size(0) : residual_.size(0) * residual_.size(1);
}

void BlockActivations::finish(const DecoderBlock& block) {
  for (int64_t i = 0; i < residual_.size(0); i += chunk_)
    step(block, block.num_groups(), i, std::min(chunk_, residual_.size(0) - i));
  input_ = sum_ = shares_ = tokens_ = torch::Tensor();
}

BlockState BlockActivations::step(const DecoderBlock& block, size_t group, int64_t first,
                                  int64_t count) {
  const auto part = [&](const torch::Tensor& all) {
    return all.defined() ? all.narrow(0, first, count) : all;
  };
  BlockState state;
  state.x = part(residual_);
  state.input = part(input_);
  state.sum = part(sum_);
  state.shares = part(shares_);
  const torch::Tensor x = state.x, sum = state.sum, shares = state.shares;
  block.advance(group, state);
  if (!state.x.is_same(x)) x.copy_(state.x);
  const auto keep = [&](torch::Tensor& all, const torch::Tensor& value, const torch::Tensor& old) {
    if (!value.defined() || value.is_same(old)) return;
    if (!all.defined())
      all = torch::empty({residual_.size(0), residual_.size(1), value.size(-1)}, value.options());
    part(all).copy_(value);
  };
  keep(sum_, state.sum, sum);
  keep(shares_, state.shares, shares);
  return state;
}

std::vector<float> BlockActivations::hessian(int64_t first, int64_t windows,
                                             const torch::Tensor& weights,
                                             const std::string& layer) const {
  const int64_t k = input_.size(-1);
  torch::Tensor x = input_.narrow(0, first, windows).reshape({-1, k}), u = weights;
  const float scale = 2.0f / static_cast<float>(x.size(0));
  if (const torch::Tensor rows = tokens(first, windows); rows.defined()) {
    x = x.index_select(0, rows);
    if (u.defined()) u = u.index_select(0, rows);
  }
  const auto accumulate =
      activations_ == Activations::kFloat32 ? accumulate_gram : accumulate_gram_int16;
  std::vector<float> hessian(k * k, 0.0f);
  for (int64_t i = 0; i < x.size(0); i += kChunkTokens) {
    const int64_t count = std::min(kChunkTokens, x.size(0) - i);
    torch::Tensor rows = x.narrow(0, i, count);
    if (u.defined()) rows = rows * u.narrow(0, i, count).sqrt().unsqueeze(-1);
    accumulate(rows.data_ptr<float>(), count, k, k, scale, hessian.data());
  }
  mirror_lower(hessian.data(), k);
  for (int64_t i = 0; i < k; ++i) {
    if (!std::isfinite(hessian[i * k + i])) throw_not_finite(layer);
  }
  return hessian;
}

float BlockActivations::input_amax(const std::string& layer) const {
  const auto [least, most] = input_.aminmax();  // NaN if there is one
  const float amax = std::max(-least.item<float>(), most.item<float>());
  if (!std::isfinite(least.item<float>()) || !std::isfinite(amax)) throw_not_finite(layer);
  return amax;
}

void BlockActivations::throw_not_finite(const std::string& layer) const {
  for (int64_t i = 0; i < input_.size(0); ++i) {
    const torch::Tensor bad = torch::nonzero(torch::logical_not(torch::isfinite(input_[i])));
    if (bad.size(0) == 0) continue;
    throw NumericalError(format(
        "%s: its inputs are not finite from calibration sample %lld on (token %lld, feature "
        "%lld); damping will not help, check the model and this sample",
        layer.c_str(), static_cast<long long>(i), static_cast<long long>(bad[0][0].item<int64_t>()),
        static_cast<long long>(bad[0][1].item<int64_t>())));
  }
  const torch::Tensor sizes = input_.abs().amax({1, 2});
  const auto largest = sizes.argmax().item<int64_t>();
  throw NumericalError(
      format("%s: its inputs are finite but their products overflow float32; the largest is %g, in "
             "calibration sample %lld",
             layer.c_str(), sizes[largest].item<double>(), static_cast<long long>(largest)));
}

}  // namespace curvq::internal
