// Two-dimensional convolution with packed weights; raw pointers, no LibTorch.
#pragma once

#include <cstdint>

#include "curvq/kernels/linear.h"

namespace curvq {

struct Conv2dShape {
  int64_t batch = 1, channels = 0, height = 0, width = 0;  // of x
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t padding_height = 0, padding_width = 0;  // zeros on every side
  int64_t dilation_height = 1, dilation_width = 1;

  int64_t out_height() const;
  int64_t out_width() const;
};

// out[b, o, i, j] = bias[o] + sum_{c, u, v} weight[o, (c kernel_height + u) kernel_width + v]
//                   x[b, c, i stride_height + u dilation_height - padding_height, ...]
//   weight  [outputs, channels * kernel_height * kernel_width]: a convolution's weight [outputs,
//           channels, kernel_height, kernel_width] taken as a matrix before it was quantized
//   x       [batch, channels, height, width] float32
//   out     [batch, outputs, out_height, out_width] float32; must not overlap x
//   bias    [outputs] or null
// The columns of some hundred output positions at a time are gathered (im2col) and multiplied as
// linear() does, with its errors and its independence of threads. Throws UsageError for sizes below
// 1 (padding: 0), a kernel larger than the padded x, a weight of other columns, null pointers, or
// an overlap, and as LinearInput for roundings.
void conv2d(const PrepackedWeight& weight, const Conv2dShape& shape, const float* x, float* out,
            const float* bias = nullptr, InputRounding rounding = InputRounding::kNone);

}  // namespace curvq
