// Products with packed weights on raw pointers; needs no LibTorch.
#pragma once

#include <cstdint>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

// What inputs of packed layers are rounded to: nothing (packed_gemm), 16-bit integers with a scale
// for every panel of columns (packed_gemm_int16), or 8-bit integers with one for every group
// (packed_gemm_int8).
enum class Activations { kFloat32, kInt16, kInt8 };

// out = x W^T, W the dequantized `weight` [n, k].
//   x    [m, k] float32, row stride ldx elements
//   out  [m, n] float32, row stride ldout elements; must not overlap x
// Exact path: each output is a float32 sum over k of float32 products of x with the dequantized
// weight, in a fixed order, so it differs from the exact product by at most
// (k + 2) 2^-24 sum_k |x_k w_k|. Independent of the number of threads. NaN and infinity in x
// propagate. Prepacks the weight at every call, which takes its memory once more; where it serves
// more than once, see linear.h. Throws UsageError for negative sizes, strides that are too short, or
// null pointers, and NumericalError for E4M3 codes that are NaN.
void packed_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx, float* out,
                 int64_t ldout);

// out = x W^T with x rounded to 16-bit integers: x[i, c] ~ q[i, c] s[i, p], one scale
// s = amax / 32767 for the 256 columns (or fewer, whole groups) of panel p. Products and their sums
// over a group (or 256 columns of it) are exact integers. Meant for many rows.
// The error is at most
//   sum_k |w_k| (s_p(k) / 2 + (k_size + 8) 2^-24 |x_k|)
// Rounding x to bfloat16 may move the largest value of a panel alone by amax 2^-9, more than all of
// its n columns are moved here in norm, sqrt(n) amax 2^-16, for n < 16384.
// Memory as in packed_gemm. A row of x with a value that is not finite gives NaN in all its
// outputs. Throws as packed_gemm, and UnsupportedError where has_int16_path() is false.
void packed_gemm_int16(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                       float* out, int64_t ldout);

// False for FP8: its values are no small integers.
bool has_int16_path(const Scheme& scheme);

// out = x W^T with x rounded to 8-bit integers: x[i, c] ~ q[i, c] s[i, b], one scale s = amax / 127
// for the columns of block b: a group of the weight, or equal pieces of at most 32 columns of a
// longer one. Products and their sums over a block are exact integers. The error is at most
//   sum_k |w_k| (s_b(k) / 2 + (k_size + 8) 2^-24 |x_k|)
// For normally distributed x and blocks of 16 its rms is about four times that of rounding x to
// bfloat16. Everything else as in packed_gemm_int16; UnsupportedError where has_int8_path() is
// false.
void packed_gemm_int8(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                      float* out, int64_t ldout);

// True for weights of 4 bits.
bool has_int8_path(const Scheme& scheme);

// `wanted`, or the next finer arithmetic that weights of `scheme` have.
Activations usable_activations(Activations wanted, const Scheme& scheme);

// The product with usable_activations(wanted, weight.scheme()).
void packed_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx, float* out,
                 int64_t ldout, Activations wanted);

// The instruction set that packed_gemm runs on here ("avx512_vnni", "avx512", "avx2", "scalar");
// the environment variable CURVQ_CPU forces a lower one.
const char* packed_gemm_path();

// The same in double precision and plain loops; what every path is tested against.
void packed_gemm_reference(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                           double* out, int64_t ldout);

}  // namespace curvq
