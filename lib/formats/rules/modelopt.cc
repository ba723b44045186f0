// nvidia-modelopt. NVFP4: the tensor scale is amax / 2688, and weights are divided by the product
// of both scales. MXFP4: the scale never clips (rceil), ties go towards zero.
#include <algorithm>
#include <cmath>

#include "curvq/formats/minifloat.h"
#include "formats/rules/rule.h"

namespace curvq::internal {
namespace {

constexpr float kSmallestScale = 0x1p-9f;

// A grid that was read from a file does not tell its amax.
float tensor_scale(const ScaleGrid& grid) {
  return grid.tensor_amax > 0 ? grid.tensor_amax / kNvfp4Range : 1.0f / grid.global_divisor;
}

class ModelOptRule : public Rule {
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
    const float scale = max_abs(block, 16) / (kE2M1Max * tensor_scale(grid));
    return f32_to_e4m3(scale == 0 ? 1.0f : std::clamp(scale, kSmallestScale, kE4M3Max));
  }

  uint8_t mxfp4_scale_code(const Scheme&, const float* group) const override {
    return e8m0_from_log2(std::ceil(rounded_log2(max_abs(group, 32) / kE2M1Max)));
  }

  void quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                 int64_t size, float* out) const override {
    if (grid.scheme.scale_type == ScaleType::kE8M0) {
      Rule::quotients(grid, row, group, weight, size, out);
      ties_to_zero(size, out);
      return;
    }
    if (grid.tensor_amax > 0 && !has_normal_tensor_scale(grid.tensor_amax)) {
      return Rule::quotients(grid, row, group, weight, size, out);
    }
    const float scale =
        e4m3_to_f32(grid.scale_codes[row * grid.groups + group]) * tensor_scale(grid);
    for (int64_t i = 0; i < size; ++i) out[i] = weight[i] / scale;
  }
};

}  // namespace

const Rule& modelopt_rule() {
  static const ModelOptRule rule;
  return rule;
}

}  // namespace curvq::internal
