#include "compress/output_gradients.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/progress.h"
#include "curvq/kernels/gram.h"
#include "curvq/linalg/symmetric.h"
#include "curvq/nn/block_graph.h"

namespace curvq::internal {
namespace {

constexpr int64_t kChunkTokens = 2048;

// Gradient in the residual stream behind the last block, [n, t, hidden].
torch::Tensor stream_gradient(const DecoderModel& model, const torch::Tensor& hidden,
                              torch::Generator& generator) {
  torch::Tensor gradient = torch::empty_like(hidden);
  for (int64_t i = 0; i < hidden.size(0); ++i) {  // a window's logits at a time
    const torch::Tensor x = hidden[i].clone().requires_grad_();
    const torch::Tensor logits = model.logits(x);
    torch::NoGradGuard no_grad;
    torch::Tensor from_logits = torch::softmax(logits, -1);
    const torch::Tensor labels = torch::multinomial(from_logits, 1, false, generator);
    from_logits.scatter_add_(-1, labels, torch::full({labels.size(0), 1}, -1.0f));
    gradient[i].copy_(torch::autograd::grad({logits}, {x}, {from_logits})[0]);
  }
  return gradient;
}

// Sets gradients[slot], those in the outputs of the block's linear layers, and returns the gradient
// in x from that in the block's output.
torch::Tensor backward(const DecoderBlock& block, const torch::Tensor& x,
                       const torch::Tensor& gradient, std::vector<torch::Tensor>& gradients) {
  const BlockGraph graph = block_graph(block, x);
  std::vector<torch::Tensor> wanted = {graph.x};
  wanted.insert(wanted.end(), graph.outputs.begin(), graph.outputs.end());
  gradients = torch::autograd::grad({graph.out}, wanted, {gradient});
  const torch::Tensor of_input = gradients.front();
  gradients.erase(gradients.begin());
  return of_input;
}

// The share of begin, ..., end - 1, at least one if there are any, evenly spread.
std::vector<int64_t> spread(int64_t begin, int64_t end, double share) {
  const int64_t all = end - begin;
  if (all == 0) return {};
  const int64_t count = std::clamp<int64_t>(std::llround(share * static_cast<double>(all)), 1, all);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(begin + i * all / count);
  return chosen;
}

}  // namespace

void visit_output_gradients(const DecoderModel& model, const torch::Tensor& ids, uint64_t seed,
                            const GradientVisitor& visit) {
  const int64_t layers = model.config().num_layers, windows = ids.size(0), length = ids.size(1);
  const int64_t chunk = std::max<int64_t>(1, kChunkTokens / length);
  torch::Generator generator = at::detail::createCPUGenerator(seed);
  Progress progress("weighing tokens", (windows + chunk - 1) / chunk * layers);
  for (int64_t first = 0; first < windows; first += chunk) {
    const int64_t count = std::min(chunk, windows - first);
    std::vector<torch::Tensor> inputs;
    torch::Tensor x;
    {
      torch::NoGradGuard no_grad;
      x = model.embed(ids.narrow(0, first, count));
      for (int64_t layer = 0; layer < layers; ++layer) {
        inputs.push_back(x);
        x = model.load_block(layer).forward(x);
      }
    }
    torch::Tensor gradient = stream_gradient(model, x, generator);
    for (int64_t layer = layers - 1; layer >= 0; --layer) {
      const DecoderBlock block = model.load_block(layer);
      std::vector<torch::Tensor> gradients;
      gradient = backward(block, inputs.back(), gradient, gradients);
      visit(layer, first * length, block, inputs.back(), gradients);
      inputs.pop_back();
      model.release_block(layer);
      progress.advance(1, "");
    }
  }
}

std::vector<std::vector<OutputGradients>> output_gradients(const DecoderModel& model,
                                                           const torch::Tensor& ids,
                                                           const GradientOptions& options,
                                                           ScratchFile* factors) {
  const int64_t windows = ids.size(0), length = ids.size(1);
  std::vector<int64_t> chosen = spread(0, windows - options.held_out, options.share);
  const int64_t seen = static_cast<int64_t>(chosen.size()) * length;
  for (int64_t window : spread(windows - options.held_out, windows, options.share))
    chosen.push_back(window);
  const int64_t tokens = static_cast<int64_t>(chosen.size()) * length;
  std::vector<std::vector<OutputGradients>> result(model.config().num_layers);
  const auto visit = [&](int64_t layer, int64_t first, const DecoderBlock&, const torch::Tensor&,
                         const std::vector<torch::Tensor>& gradients) {
    result[layer].resize(gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      const torch::Tensor g = gradients[i].flatten(0, 1).contiguous();
      OutputGradients& of = result[layer][i];
      const int64_t count = g.size(0), rows = g.size(1);
      if (!of.energies.defined()) {
        of.energies = torch::zeros({windows * length});
        of.samples = seen;
        if (factors != nullptr) of.factor = factors->zeros(rows, rows);
        if (factors != nullptr && options.held_out > 0) of.held_out = factors->zeros(rows, rows);
      }
      const torch::Tensor energies = g.square().sum(-1);
      for (int64_t i = 0; i < count; i += length) {
        of.energies.narrow(0, chosen[(first + i) / length] * length, length)
            .copy_(energies.narrow(0, i, length));
      }
      if (factors == nullptr) continue;
      const int64_t of_seen = std::clamp<int64_t>(seen - first, 0, count);
      const auto add = [&](torch::Tensor& factor, int64_t begin, int64_t part, int64_t all) {
        if (part == 0) return;
        accumulate_gram_int16(g.data_ptr<float>() + begin * rows, part, rows, rows,
                              1.0f / static_cast<float>(all), factor.data_ptr<float>());
      };
      add(of.factor, 0, of_seen, seen);
      add(of.held_out, of_seen, count - of_seen, tokens - seen);
      for (const torch::Tensor& factor : {of.factor, of.held_out}) {
        if (!factor.defined()) continue;
        if (first + count == tokens) mirror_lower(factor.data_ptr<float>(), rows);
        ScratchFile::put_away(factor);
      }
    }
  };
  visit_output_gradients(model, ids.index_select(0, torch::tensor(chosen)), options.seed, visit);
  return result;
}

torch::Tensor shrunk_factor(const torch::Tensor& factor, int64_t samples) {
  const int64_t rows = factor.size(0);
  const double mean = factor.diagonal().mean().item<double>();
  const torch::Tensor identity = torch::eye(rows);
  if (!(mean > 0) || !std::isfinite(mean)) return identity;
  const double rho = 10.0 * static_cast<double>(rows) / static_cast<double>(10 * rows + samples);
  return (factor * ((1 - rho) / mean) + identity * rho).contiguous();
}

torch::Tensor mixed_weights(const torch::Tensor& x, const torch::Tensor& energies) {
  const torch::Tensor sizes = x.to(torch::kFloat64).square().sum(-1);
  const torch::Tensor w = energies.to(torch::kFloat64);
  const double plain = sizes.sum().item<double>(), weighted = (sizes * w).sum().item<double>();
  if (!(weighted > 0) || !std::isfinite(weighted)) return torch::ones({x.size(0)});
  return ((1 + w * (plain / weighted)) / 2).to(torch::kFloat32);
}

}  // namespace curvq::internal
