// The golden feed-forward nets, built from net.json and the stored weights.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "curvq/curvature/hesscale.h"
#include "golden_matrix.h"

namespace curvq {

struct GoldenNet {
  std::vector<std::string> names;  // of the layers
  std::vector<SequentialLayer> layers;
  torch::Tensor x, y;
  bool cross_entropy;
};

inline GoldenNet golden_net(const std::string& net) {
  std::ifstream file(golden_path(net, "net.json"));
  const nlohmann::json description = nlohmann::json::parse(file);
  const SafetensorsFile weights(golden_path(net, "weights.safetensors"));
  const SafetensorsFile data(golden_path(net, "data.safetensors"));
  GoldenNet result;
  result.x = golden_tensor(data, "x");
  result.y = golden_tensor(data, "y");
  result.cross_entropy = description["loss"]["type"] == "cross_entropy";
  for (const auto& l : description["layers"]) {
    const std::string type = l["type"], name = l["name"];
    SequentialLayer layer;
    layer.kind = type == "linear"   ? SequentialKind::kLinear
                 : type == "conv2d" ? SequentialKind::kConvolution
                 : type == "tanh"   ? SequentialKind::kTanh
                 : type == "relu"   ? SequentialKind::kRelu
                                    : SequentialKind::kFlatten;
    if (l.contains("bias")) {
      layer.weight = golden_tensor(weights, name + ".weight");
      if (l["bias"]) layer.bias = golden_tensor(weights, name + ".bias");
    }
    if (type == "conv2d") {
      const int64_t kernel = l["kernel"], stride = l["stride"], padding = l["padding"];
      layer.convolution = {{kernel, kernel}, {stride, stride}, {padding, padding}, {1, 1}};
    }
    result.names.push_back(name);
    result.layers.push_back(layer);
  }
  return result;
}

// Columns s of a root of each sample's output Hessian, S S^T = H: [columns, n, out].
inline torch::Tensor output_hessian_columns(const GoldenNet& net, const torch::Tensor& outputs) {
  if (net.cross_entropy) return softmax_hessian_columns(outputs);
  const int64_t c = outputs.size(-1);
  return torch::eye(c, torch::kFloat64).unsqueeze(1).expand({c, outputs.size(0), c});
}

}  // namespace curvq
