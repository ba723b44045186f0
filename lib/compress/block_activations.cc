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
  for (int64_t i = 0; i < n; i += chunk_) {
    const int64_t count = std::min(chunk_, n - i);
    const torch::Tensor out = step(block, group, i, count).input;
    // Inputs as wide as the present ones replace them chunk by chunk.
    torch::Tensor& next = buffers_[out.size(-1)];
    if (!next.defined()) next = torch::empty({n, t, out.size(-1)}, torch::kFloat32);
    next.narrow(0, i, count).copy_(out);
    if (i + count == n) input_ = next;
  }
}

void BlockActivations::finish(const DecoderBlock& block) {
  for (int64_t i = 0; i < residual_.size(0); i += chunk_)
    step(block, block.num_groups(), i, std::min(chunk_, residual_.size(0) - i));
  input_ = sum_ = torch::Tensor();
}

BlockState BlockActivations::step(const DecoderBlock& block, size_t group, int64_t first,
                                  int64_t count) {
  const auto part = [&](const torch::Tensor& all) {
    return all.defined() ? all.narrow(0, first, count) : all;
  };
  BlockState state{part(residual_), part(input_), part(sum_)};
  const torch::Tensor x = state.x, sum = state.sum;
  block.advance(group, state);
  if (!state.x.is_same(x)) x.copy_(state.x);
  if (state.sum.defined() && !state.sum.is_same(sum)) {
    if (!sum_.defined()) sum_ = torch::zeros_like(residual_);
    part(sum_).copy_(state.sum);
  }
  return state;
}

std::vector<float> BlockActivations::hessian(int64_t first, int64_t windows,
                                             const torch::Tensor& weights,
                                             const std::string& layer) const {
  const int64_t k = input_.size(-1);
  const torch::Tensor x = input_.narrow(0, first, windows).reshape({-1, k});
  const float scale = 2.0f / static_cast<float>(x.size(0));
  const auto accumulate =
      activations_ == Activations::kFloat32 ? accumulate_gram : accumulate_gram_int16;
  std::vector<float> hessian(k * k, 0.0f);
  for (int64_t i = 0; i < x.size(0); i += kChunkTokens) {
    const int64_t count = std::min(kChunkTokens, x.size(0) - i);
    torch::Tensor rows = x.narrow(0, i, count);
    if (weights.defined()) rows = rows * weights.narrow(0, i, count).sqrt().unsqueeze(-1);
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
