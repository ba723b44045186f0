// llama.cpp: MXFP4, NVFP4 with block scales alone, and the arithmetic of Q4_0 (int4, group 32) and
// Q8_0 (int8, group 32), whose codes come from the scale before it is rounded.
#include <algorithm>
#include <bit>
#include <cmath>

#include "curvq/formats/minifloat.h"
#include "formats/rules/rule.h"

namespace curvq::internal {
namespace {

// E4M3 code of a positive scale: mantissas round half up, and from 256 on everything becomes 448.
uint8_t unsigned_e4m3(float scale) {
  if (scale < 0x1p-6f) {
    return static_cast<uint8_t>(std::min(std::floor(scale * 0x1p9f + 0.5f), 7.0f));
  }
  if (scale >= 256.0f) return 0x7e;
  const uint32_t rounded = (std::bit_cast<uint32_t>(scale) + (1u << 19)) >> 20;
  const uint32_t code = rounded - ((127u - 7u) << 3);
  return code >= 0x78 ? 0x7e : static_cast<uint8_t>(code);  // 0x78: 256
}

// The weight of the largest magnitude, with its sign; of equal ones the first.
float signed_amax(const float* group, int64_t size) {
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (std::fabs(group[i]) > std::fabs(largest)) largest = group[i];
  }
  return largest;
}

float unrounded_scale(const Scheme& scheme, const float* group, int64_t size) {
  return scheme.bits == 4 ? signed_amax(group, size) / -8.0f : max_abs(group, size) / 127.0f;
}

class LlamaCppRule : public Rule {
 public:
  bool supports(const Scheme& scheme) const override {
    return scheme.element == ElementType::kE2M1 ||
           (scheme.element == ElementType::kInt && scheme.symmetric && scheme.group_size == 32);
  }

  float nvfp4_divisor(const Scheme&, float) const override { return 1.0f; }

  uint8_t nvfp4_scale_code(const ScaleGrid&, const float* block) const override {
    const uint8_t code = unsigned_e4m3(max_abs(block, 16) / kE2M1Max);
    return code == 0 ? kZeroBlockCode : code;
  }

  uint8_t mxfp4_scale_code(const Scheme&, const float* group) const override {
    return e8m0_from_log2(std::floor(rounded_log2(max_abs(group, 32))) - 2);
  }

  // Negative for int4 where the largest magnitude is positive: that weight gets code -8.
  AffineScale affine_scale(const Scheme& scheme, const float* group, int64_t size) const override {
    const float scale = unrounded_scale(scheme, group, size);
    const float stored = round_to_dtype(scale, scheme.scale_dtype);
    if (stored != 0) return {stored, 0};
    return {scale == 0 ? epsilon(scheme.scale_dtype) : smallest_positive(scheme.scale_dtype), 0};
  }

  void quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                 int64_t size, float* out) const override {
    const Scheme& scheme = grid.scheme;
    if (scheme.element == ElementType::kE2M1) {
      Rule::quotients(grid, row, group, weight, size, out);
      ties_to_zero(size, out);
      return;
    }
    float scale = unrounded_scale(scheme, weight, size);
    // Not the weights that the grid was made of, or zeros.
    if (round_to_dtype(scale, scheme.scale_dtype) != grid.scale(row, group)) {
      scale = grid.scale(row, group);
    }
    const float reciprocal = 1.0f / scale;
    const bool overflows = std::isinf(reciprocal);
    for (int64_t i = 0; i < size; ++i) {
      const float quotient = overflows ? weight[i] / scale : weight[i] * reciprocal;
      out[i] = scheme.bits == 4 ? std::trunc(quotient + 8.5f) - 8 : std::round(quotient);
    }
  }
};

}  // namespace

const Rule& llama_cpp_rule() {
  static const LlamaCppRule rule;
  return rule;
}

}  // namespace curvq::internal
