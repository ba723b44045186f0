// How each rule turns the magnitudes of a group into its scale. All inputs are finite.
#pragma once

#include <cstdint>

#include "curvq/formats/scheme.h"

namespace curvq::internal {

// NVFP4: what block scales are divided by, from the largest magnitude of the tensor.
float nvfp4_divisor(const Scheme& scheme, float tensor_amax);
// NVFP4: E4M3 code of a block's scale; never 0 and never NaN.
uint8_t nvfp4_scale_code(const Scheme& scheme, float divisor, float block_amax);

// MXFP4: E8M0 code of a group's scale; never NaN.
uint8_t mxfp4_scale_code(const Scheme& scheme, float group_amax);

struct AffineScale {
  float scale;  // infinite if scheme.scale_dtype cannot hold it, never zero
  int zero_point;
};
// Float scales of integers and E4M3: from the smallest and largest weight of a group, each with
// zero included (min <= 0 <= max).
AffineScale affine_scale(const Scheme& scheme, float min, float max);

}  // namespace curvq::internal
