// curvq's own rule: float32 throughout, and scales that always work. They are neither zero nor
// infinite, and no code decodes to infinity: weights within a factor of two of the largest float32
// may be clipped for that.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "curvq/formats/minifloat.h"
#include "formats/codec.h"
#include "formats/range.h"
#include "formats/rules/rule.h"
#include "formats/simd_clones.h"

namespace curvq::internal {
namespace {

// With a divisor up to 2^117, the smallest effective scale 2^-9 / divisor is a normal float32.
constexpr float kLargestDivisor = 0x1p117f;
// The largest decoded magnitude is kNvfp4Range / divisor.
constexpr float kSmallestDivisor = kNvfp4Range * 0x1p-127f;
// 6 * 2^(252 - 127) is finite, 6 * 2^(253 - 127) is not.
constexpr uint8_t kLargestE8M0 = 252;

// The largest scale, or a little less, for which `element * scale` is finite. Its lower 16 bits are
// zero: it is a bfloat16, too.
float largest_scale(float element) {
  const float largest = std::numeric_limits<float>::max() / element;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::nextafter(largest, 0.0f)) & 0xffff0000u);
}

float positive(float scale, bool zeros, DType dtype) {
  if (scale > 0) return scale;
  return zeros ? epsilon(dtype) : smallest_positive(dtype);
}

CURVQ_SIMD_CLONES void block_scale_codes(float divisor, const float* __restrict amax, int64_t count,
                                         uint8_t* __restrict codes) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = E4M3Codec{}.code(divisor * amax[i] / kE2M1Max);
    const bool zeros = std::bit_cast<uint32_t>(amax[i]) == 0;
    codes[i] = static_cast<uint8_t>(select(zeros, kZeroBlockCode, code | (code == 0)));
  }
}

class CurvqRule : public Rule {
 public:
  bool supports(const Scheme&) const override { return true; }

  float nvfp4_divisor(const Scheme&, float tensor_amax) const override {
    if (tensor_amax == 0) return 1.0f;
    return std::clamp(kNvfp4Range / tensor_amax, kSmallestDivisor, kLargestDivisor);
  }

  uint8_t nvfp4_scale_code(const ScaleGrid& grid, const float* block) const override {
    uint8_t code = 0;
    const float amax = max_abs(block, 16);
    block_scale_codes(grid.global_divisor, &amax, 1, &code);
    return code;
  }

  void nvfp4_scale_codes(const ScaleGrid& grid, const float*, const float* amax,
                         uint8_t* codes) const override {
    block_scale_codes(grid.global_divisor, amax, grid.groups, codes);
  }

  uint8_t mxfp4_scale_code(const Scheme& scheme, const float* group) const override {
    return std::min(e8m0_scale_code(scheme.mx_rule, max_abs(group, 32)), kLargestE8M0);
  }

  void mxfp4_scale_codes(const ScaleGrid& grid, const float*, const float* amax,
                         uint8_t* codes) const override {
    for (int64_t g = 0; g < grid.groups; ++g)
      codes[g] = std::min(e8m0_scale_code(grid.scheme.mx_rule, amax[g]), kLargestE8M0);
  }

  AffineScale affine_scale(const Scheme& scheme, const float* group, int64_t size) const override {
    const Range range = range_of(group, size);
    const bool zeros = range.min == 0 && range.max == 0;
    const float steps = static_cast<float>((1 << scheme.bits) - 1);
    if (scheme.symmetric) {
      const bool is_int = scheme.element == ElementType::kInt;
      float scale = std::max(-range.min, range.max) / (is_int ? steps / 2 : kE4M3Max);
      scale = std::min(scale,
                       largest_scale(is_int ? static_cast<float>(-scheme.min_code()) : kE4M3Max));
      return {positive(round_to_dtype(scale, scheme.scale_dtype), zeros, scheme.scale_dtype), 0};
    }
    float scale = (range.max - range.min) / steps;
    if (std::isinf(scale)) scale = range.max / steps - range.min / steps;
    scale = positive(round_to_dtype(scale, scheme.scale_dtype), zeros, scheme.scale_dtype);
    if (zeros || std::isinf(scale)) return {scale, 0};
    const float low = static_cast<float>(scheme.min_code());
    const float high = static_cast<float>(scheme.max_code());
    const float zero_point = std::nearbyint(std::clamp(low - range.min / scale, low, high));
    return {std::min(scale, largest_scale(std::max(zero_point - low, high - zero_point))),
            static_cast<int>(zero_point)};
  }

  void row_quotients(const ScaleGrid& grid, int64_t row, const float* weight,
                     float* out) const override {
    divide_row(grid, row, weight, out);
  }
};

}  // namespace

const Rule& curvq_rule() {
  static const CurvqRule rule;
  return rule;
}

}  // namespace curvq::internal
