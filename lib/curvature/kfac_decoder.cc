#include <algorithm>

#include "curvature/label_gradients.h"
#include "curvature/named_errors.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "curvq/curvature/kfac.h"
#include "curvq/nn/block_graph.h"

namespace curvq {
namespace {

class DecoderFactors {
 public:
  DecoderFactors(const DecoderModel& model, const Batch& tokens, const KfacOptions& options,
                 const std::function<bool(const std::string&)>& wanted,
                 const LayerFactorsSink& sink)
      : model_(model),
        tokens_(tokens),
        options_(options),
        wanted_(wanted),
        sink_(sink),
        loss_(cross_entropy()),
        windows_(tokens.inputs.size(0)),
        length_(tokens.inputs.size(1)),
        chunk_(std::max<int64_t>(1, kKfacChunkTokens / length_)),
        gradient_share_(loss_->num_terms(tokens.targets) * label_weight(options)),
        progress_("K-FAC factors", 2 * model.config().num_layers + 1) {}

  void run() {
    follow_inputs();
    start_gradients();
    for (int64_t layer = model_.config().num_layers - 1; layer >= 0; --layer) go_back(layer);
  }

 private:
  struct Range {
    int64_t first, count;
  };
  // fn(range) for all windows, a chunk at a time.
  template <typename Fn>
  void by_chunk(int64_t size, Fn&& fn) const {
    for (int64_t first = 0; first < windows_; first += size)
      fn(Range{first, std::min(size, windows_ - first)});
  }
  static torch::Tensor part(const torch::Tensor& t, Range range) {
    return t.narrow(0, range.first, range.count);
  }

  // The residual stream ahead of each block and behind the last.
  void follow_inputs() {
    torch::NoGradGuard no_grad;
    streams_.push_back(model_.embed(tokens_.inputs));
    for (int64_t layer = 0; layer < model_.config().num_layers; ++layer) {
      const DecoderBlock block = model_.load_block(layer);
      torch::Tensor next = torch::empty_like(streams_.back());
      by_chunk(chunk_, [&](Range range) {
        part(next, range).copy_(block.forward(part(streams_.back(), range)));
      });
      if (!torch::isfinite(next).all().item<bool>()) throw_not_finite(block, layer);
      streams_.push_back(next);
      model_.release_block(layer);
      progress_.advance(1);
    }
  }

  [[noreturn]] void throw_not_finite(const DecoderBlock& block, int64_t layer) const {
    const auto groups = block_linears(model_.config(), layer);
    by_chunk(chunk_, [&](Range range) {
      const BlockGraph graph = block_graph(block, part(streams_.back(), range));
      for (size_t g = 0; g < groups.size(); ++g)
        naming(groups[g].front().name,
               [&] { return input_factor(graph.inputs[g], WeightSharing::kExpand); });
    });
    throw NumericalError(groups.back().front().name +
                         ": its outputs are not finite; check the model and the data");
  }

  // Gradients in the stream behind the last block, one for each pass; the head's factors. A
  // window's logits at a time.
  void start_gradients() {
    const std::string& name = model_.config().names.head;
    const bool head = kfac_layers(model_.config()).back().name == name && wanted_(name);
    LayerFactors factors;
    factors.name = name;
    by_chunk(1, [&](Range range) {
      const torch::Tensor x = part(streams_.back(), range).clone().requires_grad_();
      const torch::Tensor outputs = model_.head_output(x), logits = model_.logits_of(outputs);
      if (!torch::isfinite(logits).all().item<bool>())
        throw NumericalError(name + ": its outputs are not finite; check the model and the data");
      const LabelGradients labels(*loss_, logits, part(tokens_.targets, range), options_,
                                  range.first);
      if (head) add_inputs(model_.head_input(x).detach(), range, factors);
      for (int64_t pass = 0; pass < labels.num_passes(); ++pass) {
        const torch::Tensor seed = labels.of_pass(pass);
        const auto found =
            torch::autograd::grad({logits}, {x, outputs}, {seed}, /*retain_graph=*/true);
        if (head) add_gradients(found[1], factors);
        if (range.first == 0) gradients_.push_back(torch::empty_like(streams_.back()));
        part(gradients_[pass], range).copy_(found[0]);
      }
    });
    streams_.pop_back();
    progress_.advance(1);
    if (head) deliver(std::move(factors));
  }

  // One block's factors; the gradients become those ahead of it.
  void go_back(int64_t layer) {
    const DecoderBlock block = model_.load_block(layer);
    const auto groups = block_linears(model_.config(), layer);
    std::vector<std::vector<LayerFactors>> factors;  // by group
    for (const auto& group : groups) {
      factors.emplace_back();
      for (const LinearInfo& linear : group) {
        factors.back().emplace_back();
        factors.back().back().name = linear.name;
        factors.back().back().has_bias = linear.has_bias;
      }
    }
    by_chunk(chunk_, [&](Range range) {
      const BlockGraph graph = block_graph(block, part(streams_.back(), range));
      for (size_t g = 0; g < groups.size(); ++g)
        add_inputs(graph.inputs[g], graph.tokens[g], range, factors[g]);
      std::vector<torch::Tensor> sources = {graph.x};
      sources.insert(sources.end(), graph.outputs.begin(), graph.outputs.end());
      for (size_t pass = 0; pass < gradients_.size(); ++pass) {
        torch::Tensor gradient = part(gradients_[pass], range);
        const auto found =
            torch::autograd::grad({graph.out}, sources, {gradient}, pass + 1 < gradients_.size());
        size_t slot = found.size();
        for (size_t g = groups.size(); g-- > 0;) {  // the first that is not finite is to blame
          for (size_t i = groups[g].size(); i-- > 0;)
            if (--slot, wanted_(factors[g][i].name)) add_gradients(found[slot], factors[g][i]);
        }
        gradient.copy_(found[0]);  // last: the last layer's may be this very tensor
      }
    });
    streams_.pop_back();
    model_.release_block(layer);
    progress_.advance(1);
    for (auto& group : factors) {
      for (LayerFactors& one : group) {
        if (wanted_(one.name)) deliver(std::move(one));
      }
    }
  }

  // To all layers of a group that reads `x` of `tokens` (see BlockGraph): computed once for those
  // with a bias, once for others.
  void add_inputs(const torch::Tensor& x, const torch::Tensor& tokens, Range range,
                  std::vector<LayerFactors>& group) const {
    torch::Tensor shared[2];
    for (LayerFactors& layer : group) {
      if (!wanted_(layer.name)) continue;
      torch::Tensor& a = shared[layer.has_bias];
      if (!a.defined()) a = input_part(x, tokens, range, layer);
      layer.factors.a = layer.factors.a.defined() ? layer.factors.a + a : a;
      layer.num_inputs += range.count * length_;
    }
  }
  void add_inputs(const torch::Tensor& x, Range range, LayerFactors& layer) const {
    std::vector<LayerFactors> alone = {std::move(layer)};
    add_inputs(x, {}, range, alone);
    layer = std::move(alone.front());
  }

  torch::Tensor input_part(const torch::Tensor& x, const torch::Tensor& tokens, Range range,
                           const LayerFactors& layer) const {
    torch::Tensor inputs = layer.has_bias ? append_one(x) : x;
    double share = static_cast<double>(range.count) / windows_;
    if (tokens.defined()) {
      if (tokens.size(0) == 0)
        return torch::zeros({inputs.size(-1), inputs.size(-1)}, inputs.options());
      inputs = rows_of_tokens(inputs, tokens);
      share *= static_cast<double>(tokens.size(0)) / static_cast<double>(x.size(0) * x.size(1));
    }
    const torch::Tensor a =
        naming(layer.name, [&] { return input_factor(inputs, WeightSharing::kExpand); });
    return a * share;
  }

  void add_gradients(const torch::Tensor& g, LayerFactors& layer) const {
    const torch::Tensor part = naming(
        layer.name, [&] { return output_factor(g, WeightSharing::kExpand, gradient_share_); });
    layer.factors.g = layer.factors.g.defined() ? layer.factors.g + part : part;
  }

  void deliver(LayerFactors layer) const { sink_(std::move(layer)); }

  const DecoderModel& model_;
  const Batch& tokens_;
  const KfacOptions& options_;
  const std::function<bool(const std::string&)>& wanted_;
  const LayerFactorsSink& sink_;
  std::shared_ptr<const Loss> loss_;
  int64_t windows_, length_, chunk_, gradient_share_;
  Progress progress_;
  std::vector<torch::Tensor> streams_;    // [n, t, hidden] each
  std::vector<torch::Tensor> gradients_;  // of each pass, [n, t, hidden]
};

}  // namespace

std::vector<LinearInfo> kfac_layers(const DecoderConfig& config) {
  std::vector<LinearInfo> layers;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const auto& group : block_linears(config, layer))
      layers.insert(layers.end(), group.begin(), group.end());
  }
  if (!config.tied_embeddings && config.vocab_size <= kMostHeadOutputs)
    layers.push_back({config.names.head, config.hidden_size, config.vocab_size, false});
  return layers;
}

void check_kfac(const DecoderModel& model, const Batch& tokens, const KfacOptions& options) {
  options.validate();
  if (tokens.inputs.dim() != 2 || tokens.inputs.sizes() != tokens.targets.sizes() ||
      tokens.inputs.numel() == 0)
    throw UsageError("K-FAC factors of a decoder need ids [n, t] and targets of the same shape");
  if (tokens.inputs.size(1) > model.config().max_positions) {
    throw UsageError(format("windows of %lld tokens exceed the model's %lld positions",
                            static_cast<long long>(tokens.inputs.size(1)),
                            static_cast<long long>(model.config().max_positions)));
  }
  if ((tokens.targets >= 0).sum().item<int64_t>() == 0)
    throw UsageError("the data hold no loss term: every target is ignored");
  check_labels(options, tokens.inputs.size(1), model.config().vocab_size);
}

void kfac_factors(const DecoderModel& model, const Batch& tokens, const KfacOptions& options,
                  const std::function<bool(const std::string&)>& wanted,
                  const LayerFactorsSink& sink) {
  check_kfac(model, tokens, options);
  DecoderFactors(model, tokens, options, wanted, sink).run();
}

}  // namespace curvq
