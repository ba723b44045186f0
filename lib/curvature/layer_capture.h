// What goes into a model's linear and convolutional layers and comes out of them, seen from
// outside.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "curvq/curvature/layer_factors.h"
#include "curvq/curvature/model.h"

namespace curvq {

// A weight that the model multiplied with.
struct LayerUse {
  std::string name;  // of the layer: the weight's up to the last dot
  bool has_bias = false;
  torch::Tensor inputs;  // detached: linear [..., in], convolution [n, c, h, w], h = 1 if 1-D
  torch::Tensor output;  // in the graph: linear [..., out], convolution [n, out, (h',) w']
  std::optional<Convolution> convolution;
};

// While it lives, operators of LibTorch that this thread calls (linear, addmm, mm and matmul with a
// transposed weight, ungrouped 1-D and 2-D convolutions) are recorded if their weight is one of
// `parameters`, whatever module or TorchScript code they come from. One a thread.
class LayerCapture {
 public:
  explicit LayerCapture(const std::vector<NamedTensor>& parameters);
  ~LayerCapture();
  LayerCapture(const LayerCapture&) = delete;
  LayerCapture& operator=(const LayerCapture&) = delete;

  // In the order of the calls.
  const std::vector<LayerUse>& uses() const { return uses_; }

 private:
  struct Callbacks;
  const NamedTensor* parameter_of(const torch::Tensor& tensor) const;

  const std::vector<NamedTensor>& parameters_;
  std::vector<LayerUse> uses_;
  bool within_ = false;  // an operator that is recorded calls others, which are not
  uint64_t handle_;
};

}  // namespace curvq
