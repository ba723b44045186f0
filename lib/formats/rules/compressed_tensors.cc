// compressed-tensors: everything is computed in the weight's own type, one rounding an operation.
#include <algorithm>
#include <cmath>

#include "curvq/formats/minifloat.h"
#include "formats/range.h"
#include "formats/rules/rule.h"

namespace curvq::internal {
namespace {

class CompressedTensorsRule : public Rule {
 public:
  bool supports(const Scheme&) const override { return true; }

  // The package multiplies by a rounded reciprocal and takes 1 where that overflows.
  float nvfp4_divisor(const Scheme& scheme, float tensor_amax) const override {
    const DType dtype = scheme.source_dtype;
    const float amax = std::max(tensor_amax, smallest_normal(dtype));
    const float divisor = round_to_dtype(round_to_dtype(1.0f / amax, dtype) * kNvfp4Range, dtype);
    return std::isfinite(divisor) ? divisor : 1.0f;
  }

  uint8_t nvfp4_scale_code(const ScaleGrid& grid, const float* block) const override {
    const float scale = round_to_dtype(max_abs(block, 16) / kE2M1Max, grid.scheme.source_dtype);
    const uint8_t code = f32_to_e4m3(grid.global_divisor * scale);
    return code == 0 ? kZeroBlockCode : code;
  }

  uint8_t mxfp4_scale_code(const Scheme&, const float* group) const override {
    return e8m0_scale_code(MxRule::kEven, max_abs(group, 32));
  }

  AffineScale affine_scale(const Scheme& scheme, const float* group, int64_t size) const override {
    const auto rounded = [&](float v) { return round_to_dtype(v, scheme.source_dtype); };
    const Range range = range_of(group, size);
    const float steps = static_cast<float>((1 << scheme.bits) - 1);
    const float low = static_cast<float>(scheme.min_code());
    AffineScale result{0, 0};
    if (scheme.symmetric) {
      const bool is_int = scheme.element == ElementType::kInt;
      result.scale = rounded(std::max(-range.min, range.max) / (is_int ? steps / 2 : kE4M3Max));
    } else {
      result.scale = rounded(rounded(range.max - range.min) / steps);
      const float zero_point = rounded(low - rounded(range.min / result.scale));
      if (!std::isnan(zero_point)) {
        const float high = static_cast<float>(scheme.max_code());
        result.zero_point = static_cast<int>(std::nearbyint(std::clamp(zero_point, low, high)));
      }
    }
    if (result.scale == 0) result.scale = epsilon(scheme.source_dtype);
    result.scale = round_to_dtype(result.scale, scheme.scale_dtype);
    return result;
  }

  // NVFP4's quotients are float32 because its scale is.
  void quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                 int64_t size, float* out) const override {
    const DType dtype = grid.scheme.source_dtype;
    if (dtype == DType::kF32 || grid.scheme.scale_type == ScaleType::kE4M3) {
      return Rule::quotients(grid, row, group, weight, size, out);
    }
    const float scale = grid.scale(row, group);
    for (int64_t i = 0; i < size; ++i) out[i] = round_to_dtype(weight[i] / scale, dtype);
    if (grid.scheme.symmetric) return;
    const float zero_point = static_cast<float>(grid.zero_point(row, group));
    for (int64_t i = 0; i < size; ++i) out[i] = round_to_dtype(out[i] + zero_point, dtype);
  }

  void row_quotients(const ScaleGrid& grid, int64_t row, const float* weight,
                     float* out) const override {
    if (grid.scheme.source_dtype == DType::kF32 || grid.scheme.scale_type == ScaleType::kE4M3)
      return divide_row(grid, row, weight, out);
    Rule::row_quotients(grid, row, weight, out);
  }
};

}  // namespace

const Rule& compressed_tensors_rule() {
  static const CompressedTensorsRule rule;
  return rule;
}

}  // namespace curvq::internal
