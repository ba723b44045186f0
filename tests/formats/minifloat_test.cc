#include "curvq/formats/minifloat.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "formats/golden.h"

namespace curvq {
namespace {

using testing::Golden;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A format by its definition: (-1)^s 2^(e - bias) (1 + m / 2^mantissa_bits), subnormal for e = 0.
struct Format {
  std::string name;
  int exponent_bits, mantissa_bits, bias;
  uint8_t largest_code;
  std::function<float(uint8_t)> decode;
  std::function<uint8_t(float)> encode;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  double value(int code) const {
    const int magnitude = code & ((1 << (bits() - 1)) - 1);
    const int e = magnitude >> mantissa_bits, m = magnitude & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(m, -mantissa_bits);
    const double v = e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
    return code >> (bits() - 1) ? -v : v;
  }
};

std::ostream& operator<<(std::ostream& out, const Format& format) { return out << format.name; }

class SmallFloatTest : public ::testing::TestWithParam<Format> {};

TEST_P(SmallFloatTest, EveryFiniteCodeDecodesToItsDefinition) {
  const Format& f = GetParam();
  const int sign = 1 << (f.bits() - 1);
  for (int code = 0; code <= f.largest_code; ++code) {
    EXPECT_EQ(f.decode(static_cast<uint8_t>(code)), f.value(code)) << code;
    const float negative = f.decode(static_cast<uint8_t>(code | sign));
    EXPECT_EQ(negative, -f.value(code)) << code;
    EXPECT_TRUE(std::signbit(negative)) << code;
  }
}

TEST_P(SmallFloatTest, EncodeInvertsDecode) {
  const Format& f = GetParam();
  const int sign = 1 << (f.bits() - 1);
  for (int code = 0; code <= f.largest_code; ++code) {
    EXPECT_EQ(f.encode(f.decode(static_cast<uint8_t>(code))), code);
    if (code > 0) {
      EXPECT_EQ(f.encode(f.decode(static_cast<uint8_t>(code | sign))), code | sign);
    }
  }
}

// Between neighbours the midpoint goes to the even code, the next float32 on each side to its own.
TEST_P(SmallFloatTest, RoundsToNearestEven) {
  const Format& f = GetParam();
  const int sign = 1 << (f.bits() - 1);
  for (int code = 0; code < f.largest_code; ++code) {
    const float middle = static_cast<float>((f.value(code) + f.value(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(f.encode(middle), even) << middle;
    EXPECT_EQ(f.encode(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(f.encode(std::nextafter(middle, kInf)), code + 1) << middle;
    if (even > 0) {
      EXPECT_EQ(f.encode(-middle), even | sign) << -middle;
    }
    EXPECT_EQ(f.encode(-std::nextafter(middle, kInf)), (code + 1) | sign) << -middle;
  }
}

TEST_P(SmallFloatTest, SaturatesAboveTheLargestValue) {
  const Format& f = GetParam();
  const float largest = f.decode(f.largest_code);
  const uint8_t sign = static_cast<uint8_t>(1 << (f.bits() - 1));
  for (const float value : {std::nextafter(largest, kInf), largest * 1.04f, largest * 2, 1e38f,
                            std::numeric_limits<float>::max(), kInf}) {
    EXPECT_EQ(f.encode(value), f.largest_code) << value;
    EXPECT_EQ(f.encode(-value), f.largest_code | sign) << value;
  }
}

TEST_P(SmallFloatTest, Float32SubnormalsRoundToZero) {
  const Format& f = GetParam();
  EXPECT_EQ(f.encode(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f.encode(std::numeric_limits<float>::min()), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloatTest,
                         ::testing::Values(Format{"E2M1", 2, 1, 1, 7, e2m1_to_f32, f32_to_e2m1},
                                           Format{"E4M3", 4, 3, 7, 0x7e, e4m3_to_f32, f32_to_e4m3},
                                           Format{"E5M2", 5, 2, 15, 0x7b, e5m2_to_f32,
                                                  f32_to_e5m2}),
                         [](const auto& info) { return info.param.name; });

TEST(MinifloatTest, E2M1NeverGivesMinusZero) {
  for (const float value : {0.0f, -0.0f, -1e-30f, -0.1f, -0.25f}) EXPECT_EQ(f32_to_e2m1(value), 0);
}

TEST(MinifloatTest, NanStaysNan) {
  EXPECT_EQ(f32_to_e4m3(kNan) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_e5m2(kNan) & 0x7f, 0x7f);
  for (const int code : {0x7f, 0xff})
    EXPECT_TRUE(std::isnan(e4m3_to_f32(static_cast<uint8_t>(code))));
  for (const int code : {0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff}) {
    EXPECT_TRUE(std::isnan(e5m2_to_f32(static_cast<uint8_t>(code))));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(0xff)));
}

TEST(MinifloatTest, E5M2HasInfinities) {
  EXPECT_EQ(e5m2_to_f32(0x7c), kInf);
  EXPECT_EQ(e5m2_to_f32(0xfc), -kInf);
}

TEST(MinifloatTest, E8M0IsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_f32(static_cast<uint8_t>(code)), std::ldexp(1.0, code - 127)) << code;
  }
}

void expect_table(const char* file, float (*decode)(uint8_t)) {
  const Golden golden(file);
  const std::vector<uint8_t>& codes = golden["table/code"].bytes;
  const std::vector<float> values = golden["table/value"].f32();
  ASSERT_GT(codes.size(), 0u);
  for (size_t i = 0; i < codes.size(); ++i) {
    const float ours = decode(codes[i]);
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(ours)) << i;
    } else {
      EXPECT_EQ(ours, values[i]) << i;
    }
  }
}

TEST(MinifloatTest, TablesEqualPyTorch) {
  expect_table("e2m1", e2m1_to_f32);
  expect_table("e4m3fn", e4m3_to_f32);
  expect_table("e5m2", e5m2_to_f32);
  expect_table("e8m0", e8m0_to_f32);
}

void expect_saturating_casts(const char* file, uint8_t (*encode)(float)) {
  const Golden golden(file);
  const std::vector<float> x = golden["sat/x"].f32();
  const std::vector<uint8_t>& codes = golden["sat/code"].bytes;
  ASSERT_GT(codes.size(), 0u);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(encode(x[i]), codes[i]) << x[i];
}

TEST(MinifloatTest, CastsEqualPyTorch) {
  expect_saturating_casts("e4m3fn", f32_to_e4m3);
  expect_saturating_casts("e5m2", f32_to_e5m2);
}

TEST(MinifloatTest, E2M1EqualsOtherPackages) {
  const Golden golden("e2m1");
  const std::vector<float> x = golden["x"].f32();
  for (const char* package : {"compressed_tensors", "modelopt_nvfp4", "torchao"}) {
    const std::vector<uint8_t>& codes = golden[std::string(package) + "/code"].bytes;
    ASSERT_EQ(codes.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const int theirs = codes[i] == 8 ? 0 : codes[i];  // minus zero
      EXPECT_EQ(f32_to_e2m1(x[i]), theirs) << package << ", " << x[i];
    }
  }
}

}  // namespace
}  // namespace curvq
