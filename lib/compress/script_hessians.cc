#include "compress/script_hessians.h"

#include <algorithm>

#include "curvature/layer_capture.h"
#include "curvature/named_errors.h"
#include "curvq/curvature/layer_factors.h"

namespace curvq::internal {
namespace {

std::vector<NamedTensor> weights_of(const ScriptModel& model,
                                    const std::vector<const ScriptLayer*>& layers) {
  std::vector<NamedTensor> weights;
  for (const ScriptLayer* layer : layers)
    weights.push_back({layer->name + ".weight", model.find(layer->weight)->value});
  return weights;
}

// sum r r^T, and how many r.
struct Moments {
  torch::Tensor sum;
  int64_t rows = 0;

  void add(const LayerUse& use) {
    const torch::Tensor inputs =
        use.convolution ? unfold_inputs(use.inputs, *use.convolution) : use.inputs;
    const torch::Tensor flat = inputs.reshape({-1, inputs.size(-1)});
    if (flat.size(0) == 0) return;
    const torch::Tensor a =
        naming(use.name, [&] { return input_factor(flat, WeightSharing::kExpand); })
            .to(torch::kFloat64)
            .mul_(static_cast<double>(flat.size(0)));
    sum = sum.defined() ? sum.add_(a) : a;
    rows += flat.size(0);
  }
};

}  // namespace

std::vector<std::string> call_order(const ScriptModel& model,
                                    const std::vector<const ScriptLayer*>& layers,
                                    const torch::Tensor& x) {
  const std::vector<NamedTensor> weights = weights_of(model, layers);
  std::vector<std::string> order;
  const auto add = [&](const std::string& name) {
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  };
  const LayerCapture capture(weights);
  model.forward(x.narrow(0, 0, std::min(kScriptChunk, x.size(0))));
  for (const LayerUse& use : capture.uses()) add(use.name);
  for (const ScriptLayer* layer : layers) add(layer->name);
  return order;
}

std::map<std::string, std::vector<float>> script_hessians(
    const ScriptModel& model, const std::vector<const ScriptLayer*>& layers,
    const torch::Tensor& x) {
  const std::vector<NamedTensor> weights = weights_of(model, layers);
  std::map<std::string, Moments> moments;
  for (int64_t first = 0; first < x.size(0); first += kScriptChunk) {
    const LayerCapture capture(weights);
    model.forward(x.narrow(0, first, std::min(kScriptChunk, x.size(0) - first)));
    for (const LayerUse& use : capture.uses()) moments[use.name].add(use);
  }
  std::map<std::string, std::vector<float>> hessians;
  for (const ScriptLayer* layer : layers) {
    std::vector<float>& hessian = hessians[layer->name];
    hessian.resize(layer->cols * layer->cols);
    const Moments& of_layer = moments[layer->name];
    if (of_layer.rows == 0) continue;
    const torch::Tensor mean =
        (of_layer.sum * (2.0 / static_cast<double>(of_layer.rows))).to(torch::kFloat32);
    std::copy_n(mean.data_ptr<float>(), hessian.size(), hessian.begin());
  }
  return hessians;
}

}  // namespace curvq::internal
