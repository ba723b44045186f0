// Inputs of linear layers rounded to a low precision, as W4A4 and W8A8 checkpoints ask for, with
// the arithmetic of compressed-tensors 0.20.1 in float32:
//
//   kNvfp4      s = e4m3(g amax_16 / 6), 0 -> 0.125;   x' = e2m1(x / (s / g)) (s / g)
//   kMxfp4      s = 2^e, e by MxRule::kEven;           x' = e2m1(x / s) s
//   kFp8        s = amax_token / 448;                  x' = e4m3(x / s) s
//   kFp8Tensor  s stored;                              x' = e4m3(x / s) s
//   kInt8       s = amax_token / 127.5;                x' = clamp(rn(x / s), -128, 127) s
//
// amax_n is the largest magnitude of n consecutive features; scales of a token's features that are
// all zero give zeros.
#pragma once

#include <cstdint>

#include "curvq/formats/scheme.h"

namespace curvq {

// Whether the format has a scale that is stored with the layer.
bool has_input_scale(InputFormat format);

// The scale to store for inputs of this largest magnitude. kNvfp4: g = 2688 / amax, which divides;
// kFp8Tensor: amax / 448 in scheme.scale_dtype. 1 where amax is 0 (inputs that calibration never
// saw) or the scale would not be finite and positive; 0 for formats without one.
float input_scale(const Scheme& scheme, float amax);

// Features that share a scale, which must divide the layer's inputs; 0: all of a token's.
int64_t input_group(InputFormat format);

// Rounds x [rows, cols] into out (may be x). `scale` as from input_scale(). Throws UsageError if
// input_group() does not divide cols. Values that are not finite make NaN of what shares their
// scale. Deterministic; rows in parallel.
void round_inputs(InputFormat format, float scale, const float* x, int64_t rows, int64_t cols,
                  float* out);

}  // namespace curvq
