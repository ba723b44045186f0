#include "compress/sparsity_allocation.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compress/output_gradients.h"

namespace curvq::internal {

void SaliencyHistogram::add(float saliency) {
  ++counts_[saliency > 0 ? std::bit_cast<uint32_t>(saliency) >> 16 : 0];
  ++total_;
}

std::vector<double> shares_below_threshold(const std::vector<SaliencyHistogram>& layers,
                                           double sparsity, double most) {
  double wanted = 0;
  for (const SaliencyHistogram& layer : layers)
    wanted += sparsity * static_cast<double>(layer.total());
  std::vector<double> gone(layers.size(), 0.0);
  const auto capped = [&](size_t i, double count) {
    return std::min(count, most * static_cast<double>(layers[i].total()));
  };
  double sum = 0;
  for (size_t bin = 0; bin < layers.front().bins() && sum < wanted; ++bin) {
    double added = 0;
    for (size_t i = 0; i < layers.size(); ++i)
      added += capped(i, gone[i] + static_cast<double>(layers[i].count(bin))) - gone[i];
    const double part = sum + added > wanted ? (wanted - sum) / added : 1;
    for (size_t i = 0; i < layers.size(); ++i) {
      const double all = capped(i, gone[i] + static_cast<double>(layers[i].count(bin)));
      gone[i] += part * (all - gone[i]);
    }
    sum += part * added;
  }
  for (size_t i = 0; i < layers.size(); ++i) gone[i] /= static_cast<double>(layers[i].total());
  return gone;
}

std::vector<std::vector<FactorDiagonals>> factor_diagonals(const DecoderModel& model,
                                                           const torch::Tensor& ids,
                                                           uint64_t seed) {
  std::vector<std::vector<FactorDiagonals>> out(model.config().num_layers);
  const double tokens = static_cast<double>(ids.numel());
  const auto mean_square = [&](const torch::Tensor& x) {
    return x.detach().reshape({-1, x.size(-1)}).square().sum(0) / tokens;
  };
  const auto groups = block_linears(model.config(), 0);
  const auto add = [&](int64_t layer, int64_t, const std::vector<torch::Tensor>& inputs,
                       const std::vector<torch::Tensor>& gradients) {
    size_t slot = 0;
    for (size_t group = 0; group < groups.size(); ++group) {
      const torch::Tensor of_inputs = mean_square(inputs[group]);
      for (size_t i = 0; i < groups[group].size(); ++i, ++slot) {
        const FactorDiagonals chunk{of_inputs, mean_square(gradients[slot])};
        if (out[layer].size() <= slot) {
          out[layer].push_back(chunk);
        } else {
          out[layer][slot].inputs = out[layer][slot].inputs + chunk.inputs;
          out[layer][slot].gradients = out[layer][slot].gradients + chunk.gradients;
        }
      }
    }
  };
  visit_output_gradients(model, ids, seed, add);
  return out;
}

}  // namespace curvq::internal
