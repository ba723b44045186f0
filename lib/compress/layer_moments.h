// Sums over the calibration tokens that one layer's rounding needs.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "compress/block_activations.h"

namespace curvq::internal {

struct LayerMoments {
  std::vector<float> hessian;           // [in, in] of the windows that rounding sees
  std::vector<float> held_out_hessian;  // [in, in] of the others; empty if there are none
  // See corrected_weight(); undefined where they are not wanted.
  torch::Tensor input_cross, residual_cross;
  // [out, out], shrunk_factor() of the windows that rounding sees, and what the others' gradients
  // give; undefined where they are not wanted.
  torch::Tensor output_factor, held_out_factor;
  double factor_shrinkage = 0;      // of output_factor towards the identity
  std::optional<float> input_amax;  // over all windows; not set where it is not wanted
  int64_t tokens = 0;               // that come to the layer, held-out ones too
};

struct MomentsWanted {
  int64_t held_out = 0;         // windows, the last ones
  torch::Tensor energies = {};  // [n * t] for mixed_weights(); undefined: all tokens alike
  bool residual_cross = false;
  bool tokens = false;
  bool input_amax = false;
  bool hessian = true;  // and all that is made with it; else input_amax alone
};

// Of the layers that read `quantized.input()`; with `originals`, the same tokens in the float
// model, also the crosses. Throws as BlockActivations::hessian().
LayerMoments layer_moments(const std::string& layer, const BlockActivations& quantized,
                           const BlockActivations* originals, const MomentsWanted& wanted);

}  // namespace curvq::internal
