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

// Returns the gradient in x from that in the block's output; in_outputs[slot] [tokens of x, out]
// become those in the linear layers' outputs.
torch::Tensor backward(const DecoderBlock& block, const torch::Tensor& x,
                       const torch::Tensor& gradient, std::vector<torch::Tensor>& in_outputs) {
  const BlockGraph graph = block_graph(block, x);
  std::vector<torch::Tensor> wanted = {graph.x};
  wanted.insert(wanted.end(), graph.outputs.begin(), graph.outputs.end());
  const auto gradients = torch::autograd::grad({graph.out}, wanted, {gradient});
  in_outputs.clear();
  for (size_t i = 1; i < gradients.size(); ++i)
    in_outputs.push_back(gradients[i].flatten(0, 1).contiguous());
  return gradients[0];
}

}  // namespace

std::vector<std::vector<OutputGradients>> output_gradients(const DecoderModel& model,
                                                           const torch::Tensor& ids, uint64_t seed,
                                                           int64_t held_out, ScratchFile* factors) {
  const int64_t layers = model.config().num_layers, windows = ids.size(0), length = ids.size(1);
  const int64_t chunk = std::max<int64_t>(1, kChunkTokens / length);
  torch::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<std::vector<OutputGradients>> result(layers);
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
      std::vector<torch::Tensor> of_chunk;
      gradient = backward(model.load_block(layer), inputs.back(), gradient, of_chunk);
      inputs.pop_back();
      model.release_block(layer);
      result[layer].resize(of_chunk.size());
      for (size_t i = 0; i < of_chunk.size(); ++i) {
        const torch::Tensor& g = of_chunk[i];
        OutputGradients& of = result[layer][i];
        const int64_t rows = g.size(1);
        if (!of.energies.defined()) {
          of.energies = torch::empty({windows * length});
          if (factors != nullptr) of.factor = factors->zeros(rows, rows);
          if (factors != nullptr && held_out > 0) of.held_out = factors->zeros(rows, rows);
        }
        of.energies.narrow(0, first * length, count * length).copy_(g.square().sum(-1));
        if (factors == nullptr) continue;
        const int64_t seen = std::clamp<int64_t>(windows - held_out - first, 0, count) * length;
        const auto add = [&](torch::Tensor& factor, int64_t begin, int64_t tokens, int64_t all) {
          if (tokens == 0) return;
          accumulate_gram_int16(g.data_ptr<float>() + begin * rows, tokens, rows, rows,
                                1.0f / static_cast<float>(all * length), factor.data_ptr<float>());
        };
        add(of.factor, 0, seen, windows - held_out);
        add(of.held_out, seen, count * length - seen, held_out);
        for (const torch::Tensor& factor : {of.factor, of.held_out}) {
          if (!factor.defined()) continue;
          if (first + count == windows) mirror_lower(factor.data_ptr<float>(), rows);
          ScratchFile::put_away(factor);
        }
      }
      progress.advance(1, "");
    }
  }
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
