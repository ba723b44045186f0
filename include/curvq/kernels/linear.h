// Linear layers on packed weights, at the speed of the memory and of the vector units; raw
// pointers, no LibTorch. The weight is brought into the kernels' order once, inputs once for all
// the weights that share them:
//
//   PrepackedWeight weight(quantized);                       // at load
//   LinearInput input(weight, x, m, k, InputRounding::kA8);  // q, k and v may share it
//   linear(weight, input, out, n);
#pragma once

#include <cstdint>
#include <memory>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

namespace internal {
struct PrepackedWeightParts;
struct LinearInputParts;
}  // namespace internal

// What the inputs of a product are rounded to.
enum class InputRounding : uint8_t {
  kNone,   // float32
  kBF16,   // bfloat16, multiplied by the matrix unit where there is one and rows are not few
  kA15,    // integers of 15 bits with a scale for each block, multiplied as two of 8 bits
  kA8,     // integers of 8 bits with a scale for each block
  kNvfp4,  // as a GPU with FP4 units would: the values of NVFP4 or MXFP4, multiplied in float32
  kMxfp4,
};

// A quantized matrix in panels of 16 rows, the order in which kernels of all instruction sets read
// it. Immutable, cheap to copy, safe to use concurrently.
class PrepackedWeight {
 public:
  // Throws NumericalError for E4M3 codes that are NaN, UsageError for a weight without columns, and
  // ResourceError if memory does not suffice.
  explicit PrepackedWeight(const QuantizedMatrix& weight);

  int64_t rows() const;
  int64_t cols() const;
  const Scheme& scheme() const;
  // Bytes that the panels take: those of the packed weight, plus at most one panel of rows, and
  // zero points in bytes.
  int64_t memory_bytes() const;
  double prepack_seconds() const;  // wall time of the constructor
  // The matrix this was made from, to the bit.
  QuantizedMatrix unpack() const;

  const internal::PrepackedWeightParts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const internal::PrepackedWeightParts> parts_;
};

// With fewer rows than these kBF16 is faster without a matrix unit.
inline constexpr int64_t kMatrixLeastRows = 5;

// True for weights of 4 bits.
bool has_integer_inputs(const Scheme& scheme);
// True but for integers where those are not had.
bool has_input_rounding(const Scheme& scheme, InputRounding rounding);

// m rows of inputs in the order in which kernels read them; copies x. For `weight` and every other
// one of the same number of columns, element, groups and symmetry.
//
// kA8 and kA15 round x[i, c] to q s, one scale s = amax / 127 or amax / 16319, rounded up to 22
// bits, for the columns of a block: a group of the weight, or 32 columns of a longer one (its last
// block may be shorter). A row with a value that is not finite, or from 2^110 on, gives NaN in all
// outputs. kBF16 rounds to nearest, ties to
// even; what is bfloat16 already stays. kNvfp4 rounds by the scales of
// Scheme::nvfp4(), the tensor's from the largest finite row. Rows with a value that is not finite
// stay as they are.
class LinearInput {
 public:
  //   x  [m, cols] row-major, row stride ldx elements; float32, or bfloat16 as its bits
  // Throws UsageError for negative m, a stride below cols, a null pointer, or blocks of 16 (kNvfp4)
  // or 32 (kMxfp4) that do not divide cols, and UnsupportedError for kA8 and kA15 where
  // has_integer_inputs() is false.
  LinearInput(const PrepackedWeight& weight, const float* x, int64_t m, int64_t ldx,
              InputRounding rounding = InputRounding::kNone);
  LinearInput(const PrepackedWeight& weight, const uint16_t* x, int64_t m, int64_t ldx,
              InputRounding rounding = InputRounding::kNone);

  int64_t rows() const;
  const internal::LinearInputParts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const internal::LinearInputParts> parts_;
};

// What is added to a product before it is stored.
struct LinearEnds {
  const float* bias = nullptr;      // [n]
  const float* residual = nullptr;  // [m, n]; may be out itself
  int64_t ld_residual = 0;          // its row stride in elements
};

// out = x W^T + bias + residual
//   out  [m, n] float32, row stride ldout; may overlap the x that `input` was made from
// Each output sums its columns in order, in float32, in parts of 256 (kNone, kNvfp4, kMxfp4) or 512
// columns: it depends neither on the other rows nor on the number of threads, and AVX2 and AVX-512
// give the same bits; a matrix unit, which takes inputs of kMatrixLeastRows rows or more, sums
// pairs of columns and gives others. With x as rounded, w as dequantized, and u = 2^-24 the error
// is at most
//   (k + 2) u sum_k |x_k w_k|             kNone, kNvfp4, kMxfp4
//   (k + 4) u sum_k |x_k w_k| + k 2^-125  kBF16 (a matrix unit takes numbers below 2^-126 for 0)
//   (k / 16 + 20) u sum_b sum_k |x_k w_k|  kA8 and kA15 (sums over a block are exact), to which
//   rounding x adds at most sum_k |w_k| s_b(k) / 2; with kBF16 2^-9 sum_k |x_k w_k|, and as much
//   for w on a matrix unit (NVFP4 and MXFP4 are exact there)
// and one rounding more for each end. NaN and infinity in x give what dequantizing and multiplying
// gives (kNone). Throws UsageError for an input made for another kind of weight, a stride below n,
// or a null pointer.
void linear(const PrepackedWeight& weight, const LinearInput& input, float* out, int64_t ldout,
            const LinearEnds& ends = {});

// out = silu(x G^T + gate_bias) * (x U^T + up_bias), silu(v) = v / (1 + exp(-v)): a gated layer
// without its two products in memory; silu within 12 * 2^-24 of itself, 0 below -87. Biases may be
// null. As linear() else; throws UsageError if the weights' rows differ.
void linear_swiglu(const PrepackedWeight& gate, const PrepackedWeight& up, const LinearInput& input,
                   float* out, int64_t ldout, const float* gate_bias = nullptr,
                   const float* up_bias = nullptr);

// The instruction set that linear() runs on here: "scalar", "avx2", "avx_vnni", "avx512",
// "avx512_vnni", "avx512_vbmi", "amx". The environment variable CURVQ_CPU forces a lower one.
const char* linear_path();

}  // namespace curvq
