// The arithmetic of one ScaleRule: how groups get their scales, and weights their quotients.
// Weights are finite.
#pragma once

#include <cstdint>

#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

struct AffineScale {
  float scale;  // infinite if scheme.scale_dtype cannot hold it, never zero
  int zero_point;
};

class Rule {
 public:
  virtual ~Rule() = default;

  // Whether the rule has an arithmetic for the scheme; nothing else is called where it has not.
  virtual bool supports(const Scheme& scheme) const = 0;

  // NVFP4: what block scales are divided by, from the largest magnitude of the tensor.
  virtual float nvfp4_divisor(const Scheme& scheme, float tensor_amax) const;
  // NVFP4: E4M3 code of the scale of 16 weights; never 0, never NaN. Only the grid's scheme,
  // tensor_amax and global_divisor are set.
  virtual uint8_t nvfp4_scale_code(const ScaleGrid& grid, const float* block) const;
  // Those of a row's blocks, whose largest magnitudes are known; one by one unless a rule is
  // faster.
  virtual void nvfp4_scale_codes(const ScaleGrid& grid, const float* row, const float* amax,
                                 uint8_t* codes) const;
  // MXFP4: E8M0 code of the scale of 32 weights; never NaN.
  virtual uint8_t mxfp4_scale_code(const Scheme& scheme, const float* group) const;
  virtual void mxfp4_scale_codes(const ScaleGrid& grid, const float* row, const float* amax,
                                 uint8_t* codes) const;
  // Integers and E4M3.
  virtual AffineScale affine_scale(const Scheme& scheme, const float* group, int64_t size) const;

  // Quotients of `size` weights that share the scale (row, group) of the grid: what the nearest
  // element (ties to even) is taken of. By default weight / scale + zero point.
  virtual void quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                         int64_t size, float* out) const;
  // Those of a whole row; group by group unless a rule is faster.
  virtual void row_quotients(const ScaleGrid& grid, int64_t row, const float* weight,
                             float* out) const;

 protected:
  // weight / scale + zero point of a whole row.
  static void divide_row(const ScaleGrid& grid, int64_t row, const float* weight, float* out);
};

const Rule& rule_of(ScaleRule rule);

// E4M3 code of 0.125, the scale of a block of zeros.
inline constexpr uint8_t kZeroBlockCode = 0x20;
// The largest E2M1 value times the largest E4M3 scale: what a tensor's largest weight becomes.
inline constexpr float kNvfp4Range = 2688.0f;

// Whether amax / 2688 is a normal float32. Where it is not, its reciprocal may be infinite and no
// checkpoint can hold the divisor: rules that start from amax / 2688 then follow curvq's.
bool has_normal_tensor_scale(float tensor_amax);

// Biased exponent of the E8M0 scale of a group whose largest magnitude is `amax`, by the rule's
// definition; subnormal magnitudes end at 0, the smallest.
uint8_t e8m0_scale_code(MxRule rule, float amax);

// log2 of a magnitude, rounded to float32 as the packages' logarithms are, so that values just
// above or below a power of two may count as one.
float rounded_log2(float magnitude);
// E8M0 code of 2^exponent; the smallest for exponents below it and for minus infinity.
uint8_t e8m0_from_log2(float exponent);

// Moves quotients that lie between two E2M1 values to the smaller magnitude.
void ties_to_zero(int64_t count, float* quotients);

// Distance from 1 to the next value of F32, F16 or BF16, the smallest positive value, and the
// smallest normal one.
float epsilon(DType dtype);
float smallest_positive(DType dtype);
float smallest_normal(DType dtype);

const Rule& curvq_rule();
const Rule& compressed_tensors_rule();
const Rule& modelopt_rule();
const Rule& torchao_rule();
const Rule& llama_cpp_rule();
const Rule& four_over_six_rule();

}  // namespace curvq::internal
