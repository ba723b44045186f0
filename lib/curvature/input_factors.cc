#include "curvq/curvature/input_factors.h"

#include <algorithm>

#include "curvature/named_errors.h"
#include "curvq/core/error.h"
#include "curvq/curvature/kfac.h"
#include "curvq/curvature/layer_factors.h"

namespace curvq {
namespace {

// The factors of one block's groups, added up over chunks of the tokens.
class BlockFactors {
 public:
  BlockFactors(const DecoderConfig& config, int64_t layer) {
    for (const auto& group : block_linears(config, layer)) {
      factors_.emplace_back();
      for (const LinearInfo& linear : group) factors_.back().layers.push_back(linear.name);
    }
  }

  // x: the input of the next group, [n, t, in]; `share` of all tokens.
  void add(const torch::Tensor& x, double share) {
    InputFactor& factor = factors_[next_++ % factors_.size()];
    const torch::Tensor a = naming(factor.layers.front(), [&] {
                              return input_factor(x, WeightSharing::kExpand);
                            }).mul_(share);
    factor.a = factor.a.defined() ? factor.a.add_(a) : a;
  }

  const std::vector<InputFactor>& factors() const { return factors_; }

 private:
  std::vector<InputFactor> factors_;
  size_t next_ = 0;
};

}  // namespace

torch::Tensor input_factors(const DecoderModel& model, const torch::Tensor& ids,
                            const std::function<void(const InputFactor&)>& sink) {
  if (ids.dim() != 2 || ids.numel() == 0) throw UsageError("input factors need ids [n, t]");
  const torch::NoGradGuard no_grad;
  const int64_t windows = ids.size(0), chunk = std::max<int64_t>(1, kKfacChunkTokens / ids.size(1));
  torch::Tensor stream = model.embed(ids);
  for (int64_t layer = 0; layer < model.config().num_layers; ++layer) {
    const DecoderBlock block = model.load_block(layer);
    BlockFactors factors(model.config(), layer);
    for (int64_t first = 0; first < windows; first += chunk) {
      const int64_t count = std::min(chunk, windows - first);
      const double share = static_cast<double>(count) / static_cast<double>(windows);
      torch::Tensor x = stream.narrow(0, first, count);
      BlockState state;
      state.x = x;
      for (size_t group = 0; group <= block.num_groups(); ++group) {
        block.advance(group, state);
        if (group < block.num_groups()) factors.add(state.input, share);
      }
      x.copy_(state.x);
    }
    model.release_block(layer);
    for (const InputFactor& factor : factors.factors()) sink(factor);
  }
  return stream;
}

InputFactorWork input_factor_work(const DecoderConfig& config, int64_t length) {
  InputFactorWork work;
  for (const auto& group : block_linears(config, 0)) {
    const auto in = static_cast<double>(group.front().in_features);
    work.factors += in * in;  // half of a symmetric matrix
    for (const LinearInfo& linear : group)
      work.forward += 2 * in * static_cast<double>(linear.out_features);
  }
  const auto queries = static_cast<double>(config.num_heads * config.head_dim);
  work.forward += 2 * 2 * queries * static_cast<double>(length);  // scores, then values
  work.forward *= static_cast<double>(config.num_layers);
  work.factors *= static_cast<double>(config.num_layers);
  work.head = 2.0 * static_cast<double>(config.hidden_size * config.vocab_size);
  return work;
}

}  // namespace curvq
