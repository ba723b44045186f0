#include "curvq/formats/error_bounds.h"

#include <gtest/gtest.h>

#include <cmath>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {
namespace {

const FormatBounds& find(const std::vector<FormatBounds>& all, const std::string& name,
                         const std::string& scale) {
  for (const FormatBounds& bounds : all) {
    if (bounds.name == name && (scale.empty() || bounds.scale == scale || bounds.element == scale))
      return bounds;
  }
  throw std::logic_error(name);
}

TEST(FormatBounds, AreTheKnownFractions) {
  const auto all = format_bounds();
  EXPECT_DOUBLE_EQ(find(all, "int4", "A / 7.5").max_error, 1.0 / 15);
  EXPECT_DOUBLE_EQ(find(all, "int4", "A / 7").max_error, 1.0 / 14);
  EXPECT_DOUBLE_EQ(find(all, "int8", "A / 127.5").max_error, 1.0 / 255);
  EXPECT_DOUBLE_EQ(find(all, "int8", "A / 127").max_error, 1.0 / 254);
  EXPECT_DOUBLE_EQ(find(all, "fp8", "E4M3").relative_error, 0.0625);
  EXPECT_DOUBLE_EQ(find(all, "fp8", "E5M2").relative_error, 0.125);
  EXPECT_DOUBLE_EQ(find(all, "mxfp4 floor", "").max_error, 1.0 / 4);
  EXPECT_DOUBLE_EQ(find(all, "mxfp4 even", "").max_error, 1.0 / 5);
  EXPECT_DOUBLE_EQ(find(all, "mxfp4 ceil", "").max_error, 1.0 / 5);
  EXPECT_DOUBLE_EQ(find(all, "mxfp4 rceil", "").max_error, 1.0 / 5);
  EXPECT_DOUBLE_EQ(find(all, "nvfp4", "").max_error, 3.0 / 17);
  EXPECT_DOUBLE_EQ(find(all, "nvfp4", "").bits_per_weight, 4.5 + 32.0 / (4096.0 * 4096.0));
}

// Every place where the error of a weight can be largest, by the library's own scales and codes:
// midpoints between the values that codes have, the floats beside them, and A.
struct Worst {
  double error = 0, relative = 0, zero = 0, not_zero = 1;
};

void search(const Scheme& scheme, const FormatBounds& bounds, float amax, float tensor_amax,
            Worst* worst) {
  const int64_t size = scheme.group_size;
  std::vector<float> group(size, 0.0f);
  group[0] = amax;
  const ScaleGrid grid = make_scale_grid(group.data(), 1, size, scheme, tensor_amax);
  const float scale = grid.scales[0];
  std::vector<float> weights = {amax};
  for (size_t i = 1; i < bounds.levels.size(); ++i) {
    const auto middle = static_cast<float>((bounds.levels[i - 1] + bounds.levels[i]) / 2 * scale);
    for (const float weight :
         {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, HUGE_VALF)}) {
      if (weight > 0 && weight <= amax) weights.push_back(weight);
    }
  }
  for (const float magnitude : weights) {
    for (const float weight : {magnitude, -magnitude}) {
      const float value = decode(scheme, encode(scheme, weight, scale, 0), scale, 0);
      const double error = std::abs(static_cast<double>(value) - weight);
      worst->error = std::max(worst->error, error / amax);
      if (magnitude >= bounds.relative_from * amax)
        worst->relative = std::max(worst->relative, error / magnitude);
      if (value == 0) {
        worst->zero = std::max<double>(worst->zero, magnitude / amax);
      } else {
        worst->not_zero = std::min<double>(worst->not_zero, magnitude / amax);
      }
    }
  }
}

struct Case {
  const char *name, *scale;
  Scheme scheme;
};

Scheme mxfp4(MxRule rule) {
  Scheme scheme = Scheme::mxfp4();
  scheme.mx_rule = rule;
  return scheme;
}

// All mantissas of twelve bits, over three binades.
TEST(FormatBounds, HoldInAnExhaustiveSearchAndAreReached) {
  const auto all = format_bounds();
  const Case cases[] = {
      {"int4", "A / 7.5", Scheme::int4(32)},      {"int8", "A / 127.5", Scheme::int8(32)},
      {"fp8", "E4M3", Scheme::fp8(32)},           {"mxfp4 floor", "", mxfp4(MxRule::kFloor)},
      {"mxfp4 even", "", mxfp4(MxRule::kEven)},   {"mxfp4 ceil", "", mxfp4(MxRule::kCeil)},
      {"mxfp4 rceil", "", mxfp4(MxRule::kRceil)}, {"nvfp4", "", Scheme::nvfp4()}};
  for (const Case& c : cases) {
    const FormatBounds& bounds = find(all, c.name, c.scale);
    Worst worst;
    for (int mantissa = 0; mantissa < 4096; ++mantissa) {
      for (const int exponent : {-7, -2, 0}) {
        const float amax = std::ldexp(1.0f + static_cast<float>(mantissa) / 4096.0f, exponent);
        search(c.scheme, bounds, amax, 2.0f, &worst);
      }
    }
    // The search steps through A. Scale, weight, quotient and value are rounded to float32, each by
    // up to 2^-24 of A.
    const double step = 1.0 / 2048, rounding = 4 * 0x1p-24;
    EXPECT_LE(worst.error, bounds.max_error + rounding) << c.name;
    EXPECT_GE(worst.error, bounds.max_error * (1 - step)) << c.name;
    EXPECT_LE(worst.zero, bounds.zero_high * (1 + 1e-6)) << c.name;
    EXPECT_GE(worst.zero, bounds.zero_high * (1 - step)) << c.name;
    EXPECT_GE(worst.not_zero, bounds.zero_low * (1 - 1e-6)) << c.name;
    EXPECT_LE(worst.not_zero, bounds.zero_low * (1 + step)) << c.name;
    if (bounds.relative_error > 0) {
      EXPECT_LE(worst.relative, bounds.relative_error) << c.name;
      EXPECT_GE(worst.relative, bounds.relative_error / (1 + bounds.relative_error) * (1 - 1e-6));
    }
  }
}

// Formats that the library does not write: by the levels themselves, on a grid of 2^16 weights.
TEST(FormatBounds, HoldForTheOtherScalesOnAGrid) {
  const auto all = format_bounds();
  for (const FormatBounds& bounds :
       {find(all, "int4", "A / 7"), find(all, "int8", "A / 127"), find(all, "fp8", "E5M2")}) {
    double worst = 0, relative = 0;
    for (int i = 1; i <= 1 << 16; ++i) {
      const double weight = i / 65536.0;  // of A
      const double error =
          rounding_error(bounds.levels, weight * bounds.ratio_low) / bounds.ratio_low;
      worst = std::max(worst, error);
      if (weight >= bounds.relative_from) relative = std::max(relative, error / weight);
    }
    EXPECT_LE(worst, bounds.max_error) << bounds.name;
    EXPECT_GE(worst, bounds.max_error * 0.99) << bounds.name;
    if (bounds.relative_error > 0) {
      EXPECT_LE(relative, bounds.relative_error);
    }
  }
}

}  // namespace
}  // namespace curvq
