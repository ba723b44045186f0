// torchao. NVFP4: block scales are never subnormal, and weights are multiplied with a reciprocal.
// MXFP4: all four rules; the smallest scale acts as 2^-126 when weights are divided by it.
#include <algorithm>
#include <cmath>

#include "curvq/formats/minifloat.h"
#include "formats/rules/rule.h"

namespace curvq::internal {
namespace {

constexpr float kSmallestScale = 0x1p-6f;  // the smallest normal E4M3 value

class TorchAoRule : public Rule {
 public:
  bool supports(const Scheme& scheme) const override {
    return scheme.scale_type != ScaleType::kFloat;
  }

  float nvfp4_divisor(const Scheme& scheme, float tensor_amax) const override {
    if (!has_normal_tensor_scale(tensor_amax))
      return curvq_rule().nvfp4_divisor(scheme, tensor_amax);
    return 1.0f / (tensor_amax / kNvfp4Range);
  }

  uint8_t nvfp4_scale_code(const ScaleGrid& grid, const float* block) const override {
    if (!has_normal_tensor_scale(grid.tensor_amax))
      return curvq_rule().nvfp4_scale_code(grid, block);
    const float scale = max_abs(block, 16) / kE2M1Max / (grid.tensor_amax / kNvfp4Range);
    return f32_to_e4m3(std::clamp(scale, kSmallestScale, kE4M3Max));
  }

  uint8_t mxfp4_scale_code(const Scheme& scheme, const float* group) const override {
    const float amax = max_abs(group, 32);
    if (scheme.mx_rule != MxRule::kRceil) return e8m0_scale_code(scheme.mx_rule, amax);
    return e8m0_from_log2(std::ceil(rounded_log2(amax / kE2M1Max)));
  }

  void quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                 int64_t size, float* out) const override {
    if (grid.scheme.scale_type == ScaleType::kE8M0) {
      const float scale = std::max(grid.scale(row, group), 0x1p-126f);
      for (int64_t i = 0; i < size; ++i) out[i] = weight[i] / scale;
      return;
    }
    if (grid.tensor_amax > 0 && !has_normal_tensor_scale(grid.tensor_amax)) {
      return Rule::quotients(grid, row, group, weight, size, out);
    }
    // global_divisor is the rounded reciprocal of the tensor scale.
    const float reciprocal =
        grid.global_divisor / e4m3_to_f32(grid.scale_codes[row * grid.groups + group]);
    for (int64_t i = 0; i < size; ++i) out[i] = weight[i] * reciprocal;
  }
};

}  // namespace

const Rule& torchao_rule() {
  static const TorchAoRule rule;
  return rule;
}

}  // namespace curvq::internal
