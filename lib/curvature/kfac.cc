#include "curvq/curvature/kfac.h"

#include <algorithm>
#include <map>

#include "curvature/label_gradients.h"
#include "curvature/layer_capture.h"
#include "curvature/named_errors.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "nn/torch_errors.h"

namespace curvq {
namespace {

// Layers in the order of their first use, each with all of its uses.
std::vector<std::vector<LayerUse>> by_layer(const std::vector<LayerUse>& uses) {
  std::vector<std::vector<LayerUse>> layers;
  for (const LayerUse& use : uses) {
    const auto known = std::find_if(layers.begin(), layers.end(), [&](const auto& layer) {
      return layer.front().name == use.name;
    });
    if (known == layers.end()) {
      layers.push_back({use});
    } else {
      known->push_back(use);
    }
  }
  return layers;
}

// [..., features] of n samples -> [n, positions, features].
torch::Tensor by_sample(const torch::Tensor& rows, int64_t n, const std::string& layer) {
  if (rows.numel() % (n * rows.size(-1)) != 0) {
    throw UnsupportedError(
        format("%s: its %lld rows are not positions of %lld samples", layer.c_str(),
               static_cast<long long>(rows.numel() / rows.size(-1)), static_cast<long long>(n)));
  }
  return rows.reshape({n, -1, rows.size(-1)});
}

torch::Tensor layer_inputs(const std::vector<LayerUse>& uses, int64_t n) {
  std::vector<torch::Tensor> inputs;
  for (const LayerUse& use : uses) {
    inputs.push_back(use.convolution ? unfold_inputs(use.inputs, *use.convolution)
                                     : by_sample(use.inputs, n, use.name));
  }
  const torch::Tensor all = torch::cat(inputs, 1);
  return uses.front().has_bias ? append_one(all) : all;
}

class ChunkedFactors {
 public:
  ChunkedFactors(const Problem& problem, const KfacOptions& options)
      : problem_(problem),
        options_(options),
        gradient_share_(problem.num_terms() * label_weight(options)) {}

  std::vector<LayerFactors> run() {
    Progress progress("K-FAC factors", problem_.num_chunks());
    for (int64_t i = 0; i < problem_.num_chunks(); ++i) {
      with_torch_errors(problem_.model().name, [&] { add(problem_.chunk(i)); });
      progress.advance(1);
    }
    return std::move(layers_);
  }

 private:
  void add(const Batch& chunk) {
    torch::AutoGradMode enable(true);
    torch::Tensor outputs;
    std::vector<std::vector<LayerUse>> layers;
    {
      LayerCapture capture(problem_.parameters());
      outputs = problem_.outputs(chunk);
      layers = by_layer(capture.uses());
    }
    if (layers.empty()) {
      throw UnsupportedError(problem_.model().name +
                             ": no chosen weight is that of a linear layer or an ungrouped 1-D or "
                             "2-D convolution, so that there are no K-FAC factors");
    }
    if (layers_.empty()) {
      check_labels(options_, outputs.numel() / (outputs.size(0) * outputs.size(-1)),
                   outputs.size(-1));
      layers_.resize(layers.size());
    }
    const int64_t n = chunk.inputs.size(0);
    for (size_t l = 0; l < layers.size(); ++l) add_inputs(layers[l], n, layers_[l]);
    const LabelGradients labels(problem_.loss(), outputs, chunk.targets, options_, first_);
    first_ += n;
    std::vector<torch::Tensor> sources;
    for (const auto& layer : layers) {
      for (const LayerUse& use : layer) sources.push_back(use.output);
    }
    for (int64_t pass = 0; pass < labels.num_passes(); ++pass) {
      const auto gradients =
          torch::autograd::grad({outputs}, sources, {labels.of_pass(pass)},
                                pass + 1 < labels.num_passes(), false, /*allow_unused=*/true);
      add_gradients(layers, gradients, n);
    }
  }

  void add_inputs(const std::vector<LayerUse>& uses, int64_t n, LayerFactors& layer) const {
    layer.name = uses.front().name;
    layer.has_bias = uses.front().has_bias;
    const torch::Tensor inputs = layer_inputs(uses, n);
    layer.num_inputs += n * inputs.size(1);
    const torch::Tensor a =
        naming(layer.name, [&] { return input_factor(inputs, options_.sharing); }) *
        (static_cast<double>(n) / problem_.num_samples());
    layer.factors.a = layer.factors.a.defined() ? layer.factors.a + a : a;
  }

  // From the last layer back: the first that is not finite is the one to blame.
  void add_gradients(const std::vector<std::vector<LayerUse>>& layers,
                     const std::vector<torch::Tensor>& gradients, int64_t n) {
    size_t end = gradients.size();
    for (size_t l = layers.size(); l-- > 0;) {
      std::vector<torch::Tensor> parts;
      for (const LayerUse& use : layers[l]) {
        torch::Tensor g = gradients[end - layers[l].size() + parts.size()];
        if (!g.defined()) g = torch::zeros_like(use.output);
        if (use.convolution) {
          parts.push_back(unfold_gradients(g.dim() == 3 ? g.unsqueeze(2) : g));
        } else {
          parts.push_back(by_sample(g, n, use.name));
        }
      }
      end -= layers[l].size();
      const torch::Tensor g = naming(layers_[l].name, [&] {
        return output_factor(torch::cat(parts, 1), options_.sharing, gradient_share_);
      });
      torch::Tensor& sum = layers_[l].factors.g;
      sum = sum.defined() ? sum + g : g;
    }
  }

  const Problem& problem_;
  const KfacOptions& options_;
  int64_t gradient_share_;  // each g g^T counts for one of so many
  int64_t first_ = 0;       // sample of the next chunk
  std::vector<LayerFactors> layers_;
};

}  // namespace

std::vector<LayerFactors> kfac_factors(const Problem& problem, const KfacOptions& options) {
  options.validate();
  if (!problem.loss().has_outputs())
    throw UnsupportedError(problem.model().name +
                           ": K-FAC factors need a model's outputs; this one returns its loss");
  return ChunkedFactors(problem, options).run();
}

}  // namespace curvq
