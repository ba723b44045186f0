#include "compress/output_gradients.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "curvature/label_gradients.h"
#include "curvq/core/progress.h"
#include "curvq/kernels/gram.h"
#include "curvq/linalg/symmetric.h"
#include "curvq/nn/block_graph.h"

namespace curvq::internal {
namespace {

constexpr int64_t kChunkTokens = 512;   // go forward and back together
constexpr int64_t kLogits = 4'000'000;  // in memory together

// Columns of a block's values that are kept while others go forward.
std::vector<int64_t> kept_widths(const DecoderConfig& config) {
  std::vector<int64_t> widths;
  for (const auto& group : block_linears(config, 0)) {
    for (const LinearInfo& linear : group) widths.push_back(linear.out_features);
  }
  if (!needs_last_product(config)) widths.pop_back();
  widths.push_back(config.hidden_size);  // the input
  return widths;
}

// Gradient in the residual stream behind the last block, [n, t, hidden].
torch::Tensor stream_gradient(const DecoderModel& model, const torch::Tensor& hidden,
                              torch::Generator& generator) {
  if (model.config().bidirectional) return torch::randn(hidden.sizes(), generator);
  torch::Tensor gradient = torch::empty_like(hidden);
  const torch::Tensor tokens = hidden.flatten(0, 1), gradients = gradient.flatten(0, 1);
  const int64_t chunk = std::max<int64_t>(1, kLogits / model.config().vocab_size);
  for (int64_t i = 0; i < tokens.size(0); i += chunk) {
    const int64_t count = std::min(chunk, tokens.size(0) - i);
    const torch::Tensor x = tokens.narrow(0, i, count).clone().requires_grad_();
    const torch::Tensor logits = model.logits(x);
    torch::NoGradGuard no_grad;
    torch::Tensor from_logits = torch::softmax(logits, -1);
    const torch::Tensor labels = sample_labels(from_logits, generator);
    from_logits.scatter_add_(-1, labels, torch::full({labels.size(0), 1}, -1.0f));
    gradients.narrow(0, i, count).copy_(torch::autograd::grad({logits}, {x}, {from_logits})[0]);
  }
  return gradient;
}

// Of each block what going back needs: its linear layers' products and its input.
// In one piece, as pieces would keep what is freed between them from being used again.
class KeptValues {
 public:
  KeptValues(const DecoderConfig& config, int64_t windows, int64_t length)
      : widths_(kept_widths(config)) {
    const int64_t width = std::accumulate(widths_.begin(), widths_.end(), int64_t{0});
    values_ = torch::empty({config.num_layers, windows, length, width});
  }

  void put(int64_t layer, const std::vector<torch::Tensor>& values) {
    std::vector<torch::Tensor> places = get(layer, values.front().size(0));
    for (size_t i = 0; i < values.size(); ++i) places[i].copy_(values[i]);
  }

  std::vector<torch::Tensor> get(int64_t layer, int64_t windows) const {
    return values_[layer].narrow(0, 0, windows).split_with_sizes(widths_, -1);
  }

 private:
  std::vector<int64_t> widths_;
  torch::Tensor values_;  // [layer, window, token, width]
};

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
  KeptValues kept(model.config(), chunk, length);
  Progress progress("weighing tokens", (windows + chunk - 1) / chunk * layers);
  for (int64_t first = 0; first < windows; first += chunk) {
    const int64_t count = std::min(chunk, windows - first);
    torch::Tensor x;
    {
      torch::NoGradGuard no_grad;
      x = model.embed(ids.narrow(0, first, count));
      for (int64_t layer = 0; layer < layers; ++layer) {
        std::vector<torch::Tensor> values;
        const torch::Tensor next = forward_with_products(model.load_block(layer), x, values);
        values.push_back(x);
        kept.put(layer, values);
        x = next;
      }
    }
    torch::Tensor gradient = stream_gradient(model, x, generator);
    for (int64_t layer = layers - 1; layer >= 0; --layer) {
      const DecoderBlock block = model.load_block(layer);
      std::vector<torch::Tensor> products = kept.get(layer, count);
      const torch::Tensor input = products.back();
      products.pop_back();
      const BlockGraph graph = block_graph(block, input, products);
      std::vector<torch::Tensor> wanted = {graph.x};
      wanted.insert(wanted.end(), graph.outputs.begin(), graph.outputs.end());
      auto gradients = torch::autograd::grad({graph.out}, wanted, {gradient});
      gradient = gradients.front();
      gradients.erase(gradients.begin());
      visit(layer, first * length, graph.inputs, gradients);
      model.release_block(layer);
      progress.advance(1, "");
    }
  }
}

int64_t gradient_floats(const DecoderConfig& config, int64_t length) {
  const int64_t tokens = std::max<int64_t>(1, kChunkTokens / length) * length;
  const std::vector<int64_t> kept = kept_widths(config);
  int64_t weights = 0, outputs = 0, largest = 0;
  for (const auto& group : block_linears(config, 0)) {
    for (const LinearInfo& linear : group) {
      weights += linear.in_features * linear.out_features;
      outputs += linear.out_features;
      largest = std::max(largest, linear.out_features);
    }
  }
  const int64_t head = config.vocab_size * config.hidden_size;
  const int64_t logits = std::max(kLogits, config.vocab_size);  // with softmax, draws, gradients
  // What is kept; a block's graph and the gradients in it; one layer's integers and factors.
  return config.num_layers * tokens * std::accumulate(kept.begin(), kept.end(), int64_t{0}) +
         weights + 6 * tokens * outputs + head + 5 * logits + 2 * tokens * largest +
         3 * largest * largest;
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
  const auto visit = [&](int64_t layer, int64_t first, const std::vector<torch::Tensor>&,
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

namespace {

constexpr char kGradients[] = "gradients.safetensors";

std::string key(size_t layer, size_t linear, const char* what) {
  return std::to_string(layer) + "." + std::to_string(linear) + "." + what;
}

}  // namespace

bool has_gradients(const RunState& state) { return state.has(kGradients); }

void save_gradients(const RunState& state,
                    const std::vector<std::vector<OutputGradients>>& gradients) {
  NamedTensors tensors;
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    for (size_t i = 0; i < gradients[layer].size(); ++i) {
      const OutputGradients& of = gradients[layer][i];
      tensors.emplace_back(key(layer, i, "energies"), of.energies);
      if (of.factor.defined()) tensors.emplace_back(key(layer, i, "factor"), of.factor);
      if (of.held_out.defined()) tensors.emplace_back(key(layer, i, "held_out"), of.held_out);
    }
  }
  state.save(kGradients, tensors, {{"samples", std::to_string(gradients[0][0].samples)}});
}

std::vector<std::vector<OutputGradients>> load_gradients(const RunState& state) {
  std::map<std::string, std::string> metadata;
  const std::map<std::string, torch::Tensor> tensors = state.load(kGradients, metadata);
  const auto find = [&](size_t layer, size_t linear, const char* what) {
    const auto found = tensors.find(key(layer, linear, what));
    return found == tensors.end() ? torch::Tensor() : found->second;
  };
  std::vector<std::vector<OutputGradients>> gradients;
  for (size_t layer = 0; find(layer, 0, "energies").defined(); ++layer) {
    gradients.emplace_back();
    for (size_t i = 0; find(layer, i, "energies").defined(); ++i) {
      gradients.back().push_back({find(layer, i, "energies"), find(layer, i, "factor"),
                                  find(layer, i, "held_out"), std::stoll(metadata.at("samples"))});
    }
  }
  return gradients;
}

torch::Tensor shrunk_factor(const torch::Tensor& factor, int64_t samples) {
  const int64_t rows = factor.size(0);
  const double mean = factor.diagonal().mean().item<double>();
  const torch::Tensor identity = torch::eye(rows);
  if (!(mean > 0) || !std::isfinite(mean)) return identity;
  const double rho = factor_shrinkage(rows, samples);
  return (factor * ((1 - rho) / mean) + identity * rho).contiguous();
}

double factor_shrinkage(int64_t rows, int64_t samples) {
  return 10.0 * static_cast<double>(rows) / static_cast<double>(10 * rows + samples);
}

torch::Tensor mixed_weights(const torch::Tensor& x, const torch::Tensor& energies) {
  const torch::Tensor sizes = x.to(torch::kFloat64).square().sum(-1);
  const torch::Tensor w = energies.to(torch::kFloat64);
  const double plain = sizes.sum().item<double>(), weighted = (sizes * w).sum().item<double>();
  if (!(weighted > 0) || !std::isfinite(weighted)) return torch::ones({x.size(0)});
  return ((1 + w * (plain / weighted)) / 2).to(torch::kFloat32);
}

}  // namespace curvq::internal
