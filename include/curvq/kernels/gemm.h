// Products with packed weights on raw pointers; needs no LibTorch.
#pragma once

#include <cstdint>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

// out = x W^T, W the dequantized `weight` [n, k].
//   x    [m, k] float32, row stride ldx elements
//   out  [m, n] float32, row stride ldout elements; must not overlap x
// Exact path: each output is a float32 sum over k of float32 products of x with the dequantized
// weight, in a fixed order, so it differs from the exact product by at most
// (k + 2) 2^-24 sum_k |x_k w_k|. Independent of the number of threads. NaN and infinity in x
// propagate. Throws UsageError for negative sizes, strides that are too short, or null pointers.
void packed_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx, float* out,
                 int64_t ldout);

// The instruction set that packed_gemm runs on here ("avx512", "avx2", "scalar"); the environment
// variable CURVQ_CPU forces a lower one.
const char* packed_gemm_path();

// The same in double precision and plain loops; what every path is tested against.
void packed_gemm_reference(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                           double* out, int64_t ldout);

}  // namespace curvq
