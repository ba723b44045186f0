// Four over Six (arXiv 2512.02010): NVFP4 blocks whose largest weight becomes 4 instead of 6 where
// that loses less in the sum of squares. The tensor scale leaves room for the larger block scales
// of such blocks: 6 * 256 instead of 6 * 448.
#include <algorithm>
#include <array>
#include <cmath>

#include "curvq/formats/minifloat.h"
#include "formats/rules/rule.h"

namespace curvq::internal {
namespace {

constexpr float kRange = kE2M1Max * 256;
constexpr float kLargestDivisor = 0x1p117f;  // as in curvq's rule

// Weights on a block scale; the reciprocal of the divisor is rounded before it is used.
void scaled(const float* block, float divisor, float scale, int64_t size, float* out) {
  const float factor = 1.0f / (1.0f / divisor * scale);
  for (int64_t i = 0; i < size; ++i) out[i] = block[i] * factor;
}

// Sum of squared errors of a block on a scale, in the order in which eight float32 lanes add.
float squared_error(const float* block, float divisor, float scale, float tensor_amax) {
  if (scale == 0) scale = e4m3_to_f32(kZeroBlockCode);
  std::array<float, 16> quotient, square;
  scaled(block, divisor, scale, 16, quotient.data());
  for (int i = 0; i < 16; ++i) {
    const float value = e2m1_to_f32(f32_to_e2m1(quotient[i])) * scale * tensor_amax / kRange;
    square[i] = (value - block[i]) * (value - block[i]);
  }
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += square[i] + square[i + 8];
  return sum;
}

class FourOverSixRule : public Rule {
 public:
  bool supports(const Scheme& scheme) const override {
    return scheme.scale_type == ScaleType::kE4M3;
  }

  float nvfp4_divisor(const Scheme&, float tensor_amax) const override {
    return tensor_amax == 0 ? 1.0f : std::min(kRange / tensor_amax, kLargestDivisor);
  }

  uint8_t nvfp4_scale_code(const ScaleGrid& grid, const float* block) const override {
    const float divisor = grid.global_divisor;
    const float scale = max_abs(block, 16) / kE2M1Max * divisor;
    const uint8_t six = f32_to_e4m3(scale), four = f32_to_e4m3(1.5f * scale);
    const float error_six = squared_error(block, divisor, e4m3_to_f32(six), grid.tensor_amax);
    const float error_four = squared_error(block, divisor, e4m3_to_f32(four), grid.tensor_amax);
    const uint8_t code = error_four < error_six ? four : six;
    return code == 0 ? kZeroBlockCode : code;
  }

  void quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                 int64_t size, float* out) const override {
    scaled(weight, grid.global_divisor, e4m3_to_f32(grid.scale_codes[row * grid.groups + group]),
           size, out);
  }
};

}  // namespace

const Rule& four_over_six_rule() {
  static const FourOverSixRule rule;
  return rule;
}

}  // namespace curvq::internal
