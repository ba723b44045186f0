#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

// Magnitudes over the whole range of float32, subnormals included.
std::vector<float> all_magnitudes() {
  std::vector<float> values = {kSmallest, 3 * kSmallest, kLargest};
  for (int e = -149; e < 128; ++e) {
    for (const double m : {1.0, 1.25, 1.5, 1.7499999, 1.75, 1.9999999}) {
      values.push_back(static_cast<float>(std::ldexp(m, e)));
      values.push_back(std::nextafter(values.back(), kInf));
      if (std::isinf(values.back())) values.pop_back();
    }
  }
  return values;
}

// A grid of one group: `amax` among smaller weights.
ScaleGrid one_group(const Scheme& scheme, float amax) {
  std::vector<float> weight(scheme.group_size, amax / 3);
  weight[5] = -amax;
  return make_scale_grid(weight.data(), 1, scheme.group_size, scheme, amax);
}

TEST(MaxAbsTest, FindsTheLargestMagnitude) {
  std::vector<float> values(101, 0.5f);
  values[100] = -3.0f;
  EXPECT_EQ(max_abs(values.data(), 101), 3.0f);
  EXPECT_EQ(max_abs(values.data(), 100), 0.5f);
  EXPECT_EQ(max_abs(values.data(), 0), 0.0f);
  values[40] = -kInf;
  EXPECT_EQ(max_abs(values.data(), 101), kInf);
  values[7] = kNan;
  EXPECT_TRUE(std::isnan(max_abs(values.data(), 101)));
}

TEST(Nvfp4GridTest, FollowsItsFormula) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> weight(8 * 64);
  for (float& w : weight) w = normal(generator);
  const float amax = max_abs(weight.data(), 8 * 64);
  const ScaleGrid grid = make_scale_grid(weight.data(), 8, 64, Scheme::nvfp4(), amax);
  EXPECT_EQ(grid.groups, 4);
  EXPECT_EQ(grid.global_divisor, 2688.0f / amax);
  for (int64_t r = 0; r < 8; ++r) {
    for (int64_t g = 0; g < 4; ++g) {
      float block_amax = 0;
      for (int i = 0; i < 16; ++i) {
        block_amax = std::max(block_amax, std::fabs(weight[r * 64 + g * 16 + i]));
      }
      const uint8_t code = grid.scale_codes[r * 4 + g];
      EXPECT_EQ(code, f32_to_e4m3(grid.global_divisor * block_amax / 6.0f));
      EXPECT_EQ(grid.scale(r, g), e4m3_to_f32(code) / grid.global_divisor);
    }
  }
}

TEST(Nvfp4GridTest, EveryMagnitudeGetsAUsableScale) {
  for (const float amax : all_magnitudes()) {
    const ScaleGrid grid = one_group(Scheme::nvfp4(), amax);
    EXPECT_TRUE(std::isfinite(grid.global_divisor)) << amax;
    EXPECT_GE(grid.scale_codes[0], 1) << amax;
    EXPECT_LE(grid.scale_codes[0], 0x7e) << amax;
    EXPECT_TRUE(std::isfinite(grid.scales[0])) << amax;
    EXPECT_GT(grid.scales[0], 0.0f) << amax;
    // From 2688 / 2^117 up the divisor is not limited: the largest block's scale is 448.
    if (amax > 2688 * 0x1p-117f && amax <= 0x1p127f) {
      EXPECT_EQ(grid.scale_codes[0], 0x7e) << amax;
    }
  }
}

TEST(Nvfp4GridTest, LiveBlockBesideAHugeOneHasScaleCodeOneAtLeast) {
  std::vector<float> weight(48, 1e-30f);
  weight[0] = 1e10f;
  for (int i = 32; i < 48; ++i) weight[i] = 0.0f;
  const ScaleGrid grid = make_scale_grid(weight.data(), 1, 48, Scheme::nvfp4(), 1e10f);
  EXPECT_EQ(grid.scale_codes[1], 1);
  EXPECT_GT(grid.scale_codes[2], 0);  // zeros
  EXPECT_LT(grid.scale_codes[2], 0x7f);
}

TEST(Nvfp4GridTest, SharedAmaxDecidesTheDivisor) {
  const std::vector<float> weight(16, 1.0f);
  EXPECT_EQ(make_scale_grid(weight.data(), 1, 16, Scheme::nvfp4(), 4.0f).global_divisor, 672.0f);
  // A smaller one saturates the block's scale.
  const ScaleGrid clipped = make_scale_grid(weight.data(), 1, 16, Scheme::nvfp4(), 0.5f);
  EXPECT_EQ(clipped.scale_codes[0], 0x7e);
}

// Smallest exponent e >= -127 with largest * 2^e >= amax, by definition.
int smallest_exponent(double amax, double largest) {
  int e = -127;
  while (largest * std::ldexp(1.0, e) < amax) ++e;
  return e;
}

TEST(Mxfp4GridTest, ExponentsFollowTheirDefinitions) {
  for (const float amax : all_magnitudes()) {
    Scheme scheme = Scheme::mxfp4();
    int exponent;
    const double mantissa = 2 * std::frexp(static_cast<double>(amax), &exponent);
    const int floor = exponent - 1;  // amax = mantissa * 2^floor, 1 <= mantissa < 2
    // 6 * 2^126 would be infinite.
    const auto clamped = [](int e) { return std::clamp(e + 127, 0, 252); };

    scheme.mx_rule = MxRule::kFloor;
    EXPECT_EQ(one_group(scheme, amax).scale_codes[0], clamped(floor - 2)) << amax;
    scheme.mx_rule = MxRule::kEven;
    EXPECT_EQ(one_group(scheme, amax).scale_codes[0], clamped(floor - 2 + (mantissa >= 1.75)))
        << amax;
    scheme.mx_rule = MxRule::kCeil;
    EXPECT_EQ(one_group(scheme, amax).scale_codes[0], clamped(smallest_exponent(amax, 4))) << amax;
    scheme.mx_rule = MxRule::kRceil;
    const ScaleGrid grid = one_group(scheme, amax);
    EXPECT_EQ(grid.scale_codes[0], clamped(smallest_exponent(amax, 6))) << amax;
    EXPECT_EQ(grid.scales[0], std::ldexp(1.0, grid.scale_codes[0] - 127)) << amax;
  }
}

TEST(Mxfp4GridTest, ZerosGetTheSmallestScale) {
  const std::vector<float> zeros(64, -0.0f);
  const ScaleGrid grid = make_scale_grid(zeros.data(), 1, 64, Scheme::mxfp4(), 0);
  EXPECT_EQ(grid.scale_codes, (std::vector<uint8_t>{0, 0}));
  EXPECT_EQ(grid.scales[0], 0x1p-127f);
}

TEST(FloatGridTest, SymmetricScales) {
  const std::vector<float> weight = {0.5f, -3.0f, 2.0f, 1.0f};
  const auto scale_of = [&](const Scheme& scheme) {
    return make_scale_grid(weight.data(), 1, 4, scheme, 0).scales.at(0);
  };
  EXPECT_EQ(scale_of(Scheme::int4(0)), 3.0f / 7.5f);
  EXPECT_EQ(scale_of(Scheme::int8(0)), 3.0f / 127.5f);
  EXPECT_EQ(scale_of(Scheme::fp8(0)), 3.0f / 448.0f);
  Scheme scheme = Scheme::int4(0);
  scheme.scale_dtype = DType::kBF16;
  EXPECT_EQ(scale_of(scheme), round_to_dtype(3.0f / 7.5f, DType::kBF16));
}

TEST(FloatGridTest, AsymmetricScalesAndZeroPoints) {
  const auto grid_of = [](std::vector<float> weight) {
    return make_scale_grid(weight.data(), 1, static_cast<int64_t>(weight.size()),
                           Scheme::int4(0, false), 0);
  };
  ScaleGrid grid = grid_of({-1.0f, 2.0f});
  EXPECT_EQ(grid.scales[0], 3.0f / 15.0f);
  EXPECT_EQ(grid.zero_points[0], -3);  // -8 + 5
  grid = grid_of({1.0f, 2.0f});        // zero is included below
  EXPECT_EQ(grid.scales[0], 2.0f / 15.0f);
  EXPECT_EQ(grid.zero_points[0], -8);
  grid = grid_of({-1.0f, -2.0f});  // and above
  EXPECT_EQ(grid.scales[0], 2.0f / 15.0f);
  EXPECT_EQ(grid.zero_points[0], 7);
  grid = grid_of({0.75f * kLargest, -0.75f * kLargest});  // max - min overflows
  EXPECT_EQ(grid.scales[0], 0.75f * kLargest / 15.0f + 0.75f * kLargest / 15.0f);
  EXPECT_EQ(grid.zero_points[0], 0);
}

TEST(FloatGridTest, ScalesAreNeverZero) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool symmetric : {true, false}) {
      Scheme scheme = Scheme::int4(0, symmetric);
      scheme.scale_dtype = dtype;
      const float smallest_normal = dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f;
      for (const float amax : {0.0f, kSmallest, 1e-40f, 1e-30f, 1e-8f, 1e-3f}) {
        const std::vector<float> weight = {amax, -amax / 2};
        const ScaleGrid grid = make_scale_grid(weight.data(), 1, 2, scheme, amax);
        EXPECT_GT(grid.scales[0], 0.0f) << amax;
        EXPECT_EQ(grid.scales[0], round_to_dtype(grid.scales[0], dtype)) << amax;
        if (amax == 0) {
          EXPECT_GE(grid.scales[0], smallest_normal);
          EXPECT_EQ(grid.zero_point(0, 0), 0);
        }
      }
    }
  }
}

TEST(FloatGridTest, ScaleAboveFloat16IsAnError) {
  Scheme scheme = Scheme::int4(16);
  scheme.scale_dtype = DType::kF16;
  std::vector<float> weight(3 * 32, 1.0f);
  weight[2 * 32 + 20] = 65520.0f * 7.5f;  // rounds to infinity
  try {
    make_scale_grid(weight.data(), 3, 32, scheme, 0);
    FAIL();
  } catch (const NumericalError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("row 2"), HasSubstr("group 1"), HasSubstr("BF16")));
  }
  weight[2 * 32 + 20] = 65500.0f * 7.5f;
  EXPECT_EQ(make_scale_grid(weight.data(), 3, 32, scheme, 0).scale(2, 1), 65504.0f);
}

// Whatever the rule, scales are neither zero nor infinite, and weights come back finite and with
// the right sign; weights near the largest float32 by kCurvq alone.
TEST(ScaleGridTest, EveryRuleGivesUsableScales) {
  for (const ScaleRule rule :
       {ScaleRule::kCurvq, ScaleRule::kCompressedTensors, ScaleRule::kModelOpt, ScaleRule::kTorchAo,
        ScaleRule::kLlamaCpp, ScaleRule::kFourOverSix}) {
    int supported = 0;
    for (Scheme scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32), Scheme::int8(32),
                          Scheme::int4(32, false), Scheme::fp8(32)}) {
      scheme.rule = rule;
      SCOPED_TRACE(scheme.describe());
      for (const float amax : all_magnitudes()) {
        if (amax > kLargest / 4 && rule != ScaleRule::kCurvq) continue;
        std::vector<float> weight(64);  // some blocks of zeros, one live
        for (int i = 0; i < 16; ++i) weight[i] = static_cast<float>(i - 7) / 8.0f * amax;
        const float tensor_amax = max_abs(weight.data(), 64);
        QuantizedMatrix matrix;
        try {
          matrix = quantize_rtn(weight.data(), 1, 64, scheme, tensor_amax);
        } catch (const UnsupportedError&) {
          break;
        }
        ++supported;
        EXPECT_TRUE(std::isfinite(matrix.grid.global_divisor)) << amax;
        for (const float scale : matrix.grid.scales) {
          EXPECT_NE(scale, 0.0f) << amax;
          EXPECT_TRUE(std::isfinite(scale)) << amax;
        }
        std::vector<float> values(64);
        dequantize(matrix, values.data());
        for (int i = 0; i < 64; ++i) {
          EXPECT_TRUE(std::isfinite(values[i])) << amax;
          EXPECT_GE(static_cast<double>(values[i]) * weight[i], 0.0) << amax;
        }
      }
    }
    EXPECT_GT(supported, 0) << scale_rule_name(rule);
  }
}

TEST(ScaleGridTest, NonFiniteWeightNamesRowAndColumn) {
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                               Scheme::int4(0, false), Scheme::fp8()}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      std::vector<float> weight(40 * 64, 1.0f);
      weight[17 * 64 + 45] = bad;
      weight[30 * 64] = kNan;  // the first in row order is named
      try {
        make_scale_grid(weight.data(), 40, 64, scheme, 1.0f);
        FAIL();
      } catch (const NumericalError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("row 17"), HasSubstr("column 45")));
      }
    }
  }
}

TEST(FloatGridTest, RangeThatOverflowsIsAnErrorOfCompressedTensors) {
  const std::vector<float> weight = {kLargest, -kLargest};
  Scheme scheme = Scheme::int4(0, false);
  scheme.rule = ScaleRule::kCompressedTensors;
  try {
    make_scale_grid(weight.data(), 1, 2, scheme, 0);
    FAIL();
  } catch (const NumericalError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("row 0, group 0"), HasSubstr("rule curvq")));
  }
}

TEST(ScaleGridTest, ArgumentErrors) {
  const std::vector<float> weight(172, 1.0f);
  EXPECT_THROW(make_scale_grid(weight.data(), 1, 172, Scheme::nvfp4(), 1), UsageError);
  EXPECT_THROW(make_scale_grid(weight.data(), -1, 16, Scheme::nvfp4(), 1), UsageError);
  EXPECT_THROW(make_scale_grid(weight.data(), 1, 16, Scheme::nvfp4(), kNan), NumericalError);
  EXPECT_THROW(make_scale_grid(weight.data(), 1, 16, Scheme::nvfp4(), kInf), NumericalError);
  EXPECT_THROW(make_scale_grid(weight.data(), 1, 16, Scheme::nvfp4(), -1), NumericalError);
  Scheme wrong = Scheme::nvfp4();
  wrong.group_size = 8;
  EXPECT_THROW(make_scale_grid(weight.data(), 1, 16, wrong, 1), UsageError);
}

TEST(ScaleGridTest, RuleWithoutArithmeticForTheScheme) {
  const std::vector<float> weight(128, 1.0f);
  Scheme scheme = Scheme::int8(128);
  scheme.rule = ScaleRule::kFourOverSix;
  try {
    make_scale_grid(weight.data(), 1, 128, scheme, 1);
    FAIL();
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("four-over-six"), HasSubstr("int8"),
                                    HasSubstr("curvq, compressed-tensors")));
  }
}

TEST(ScaleGridTest, IndependentOfNumberOfThreads) {
  std::mt19937 generator(2);
  std::normal_distribution<float> normal;
  std::vector<float> weight(300 * 128);
  for (float& w : weight) w = normal(generator);
  const int threads = num_threads();
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32, false)}) {
    set_num_threads(1);
    const QuantizedMatrix one = quantize_rtn(weight.data(), 300, 128, scheme, 5);
    set_num_threads(5);
    const QuantizedMatrix five = quantize_rtn(weight.data(), 300, 128, scheme, 5);
    EXPECT_EQ(one.grid.scales, five.grid.scales);
    EXPECT_EQ(one.grid.zero_points, five.grid.zero_points);
    EXPECT_EQ(one.codes, five.codes);
  }
  set_num_threads(threads);
}

}  // namespace
}  // namespace curvq
