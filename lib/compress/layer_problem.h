// One layer's rounding problem out of what a pass over the blocks finds.
#pragma once

#include <torch/torch.h>

#include "compress/layer_moments.h"
#include "curvq/compress/quantize.h"

namespace curvq::internal {

// Points into `weight` [rows, cols] float32 and `moments`, which must outlive it.
LayerProblem layer_problem(const LayerShape& layer, const Scheme& scheme, float tensor_amax,
                           const torch::Tensor& weight, const LayerMoments& moments);

}  // namespace curvq::internal
