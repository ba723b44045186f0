#include "compress/layer_moments.h"

#include <algorithm>

#include "compress/output_gradients.h"

namespace curvq::internal {
namespace {

torch::Tensor tokens_of(const torch::Tensor& windows, int64_t first, int64_t count) {
  return windows.narrow(0, first, count).reshape({-1, windows.size(-1)});
}

// 2/N sum u (a - b) x^T, a chunk of tokens at a time; u may be undefined.
torch::Tensor cross(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& x,
                    const torch::Tensor& u) {
  torch::Tensor sum = torch::zeros({a.size(1), x.size(1)});
  for (int64_t i = 0; i < x.size(0); i += kChunkTokens) {
    const int64_t count = std::min(kChunkTokens, x.size(0) - i);
    torch::Tensor difference = a.narrow(0, i, count) - b.narrow(0, i, count);
    if (u.defined()) difference *= u.narrow(0, i, count).unsqueeze(-1);
    sum.addmm_(difference.t(), x.narrow(0, i, count), 1, 2.0 / static_cast<double>(x.size(0)));
  }
  return sum;
}

}  // namespace

LayerMoments layer_moments(const std::string& layer, const BlockActivations& quantized,
                           const BlockActivations* originals, const MomentsWanted& wanted) {
  const torch::Tensor& input = quantized.input();
  const int64_t seen = input.size(0) - wanted.held_out, length = input.size(1);
  const auto weights = [&](int64_t first, int64_t count) {
    if (!wanted.energies.defined()) return torch::Tensor();
    return mixed_weights(tokens_of(input, first, count),
                         wanted.energies.narrow(0, first * length, count * length));
  };
  LayerMoments moments;
  if (wanted.input_amax) moments.input_amax = quantized.input_amax(layer);
  if (!wanted.hessian) return moments;
  const torch::Tensor u = weights(0, seen);
  moments.hessian = quantized.hessian(0, seen, u, layer);
  if (wanted.held_out > 0) {
    moments.held_out_hessian =
        quantized.hessian(seen, wanted.held_out, weights(seen, wanted.held_out), layer);
  }
  if (wanted.tokens) moments.tokens = quantized.num_tokens();
  if (originals == nullptr) return moments;
  const torch::Tensor x = tokens_of(input, 0, seen);
  moments.input_cross = cross(tokens_of(originals->input(), 0, seen), x, x, u);
  if (wanted.residual_cross) {
    moments.residual_cross = cross(tokens_of(originals->residual(), 0, seen),
                                   tokens_of(quantized.residual(), 0, seen), x, u);
  }
  return moments;
}

}  // namespace curvq::internal
