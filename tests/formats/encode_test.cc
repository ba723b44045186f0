#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {
namespace {

std::vector<Scheme> all_schemes() {
  return {Scheme::nvfp4(),        Scheme::mxfp4(),        Scheme::int4(), Scheme::int8(),
          Scheme::int4(0, false), Scheme::int8(0, false), Scheme::fp8()};
}

int num_codes(const Scheme& scheme) { return 1 << scheme.bits; }

bool has_value(const Scheme& scheme, int code) {
  return scheme.element != ElementType::kE4M3 || (code & 0x7f) != 0x7f;
}

// The code whose element is nearest to `quotient`, by trying all; of two equally near ones the one
// whose last mantissa bit (E2M1, E4M3) or integer is even.
int nearest_code(const Scheme& scheme, double quotient) {
  const int offset = scheme.element == ElementType::kInt ? num_codes(scheme) / 2 : 0;
  int best = -1;
  double best_distance = 0;
  for (int code = 0; code < num_codes(scheme); ++code) {
    if (!has_value(scheme, code)) continue;
    const double value = decode(scheme, static_cast<uint8_t>(code), 1.0f, 0);
    const double distance = std::fabs(quotient - value);
    const bool even = (code - offset) % 2 == 0;
    if (best < 0 || distance < best_distance || (distance == best_distance && even)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

// Codes 0 and 8 (0x00 and 0x80) are both zero.
float value_of(const Scheme& scheme, int code) {
  return decode(scheme, static_cast<uint8_t>(code), 1.0f, 0);
}

TEST(EncodeTest, IsNearestOfAllCodes) {
  std::mt19937 generator(1);
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    const float range =
        value_of(scheme, scheme.element == ElementType::kE2M1   ? 7
                         : scheme.element == ElementType::kE4M3 ? 0x7e
                                                                : num_codes(scheme) - 1);
    std::uniform_real_distribution<float> uniform(-1.3f * range, 1.3f * range);
    std::normal_distribution<float> exponent(0.0f, 3.0f);
    for (int i = 0; i < 20000; ++i) {
      float quotient = uniform(generator);
      if (i % 2 == 1) quotient = std::copysign(std::exp2(exponent(generator)), quotient);
      const int code = encode(scheme, quotient, 1.0f, 0);
      EXPECT_EQ(value_of(scheme, code), value_of(scheme, nearest_code(scheme, quotient)))
          << quotient;
    }
  }
}

TEST(EncodeTest, TiesGoToEven) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    for (int a = 0; a < num_codes(scheme); ++a) {
      for (int b = 0; b < num_codes(scheme); ++b) {
        if (!has_value(scheme, a) || !has_value(scheme, b)) continue;
        const float middle = (value_of(scheme, a) + value_of(scheme, b)) / 2;
        const int expected = nearest_code(scheme, middle);
        EXPECT_EQ(value_of(scheme, encode(scheme, middle, 1.0f, 0)), value_of(scheme, expected))
            << middle;
      }
    }
  }
}

TEST(EncodeTest, DividesByTheScaleAndAddsTheZeroPoint) {
  std::mt19937 generator(2);
  std::normal_distribution<float> normal;
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    for (int i = 0; i < 5000; ++i) {
      const float scale = std::exp2(4 * normal(generator)), w = 3 * scale * normal(generator);
      const int zero_point = scheme.symmetric ? 0 : static_cast<int>(generator() % 16) - 8;
      float quotient = w / scale;
      quotient += static_cast<float>(zero_point);
      const int code = encode(scheme, w, scale, zero_point);
      EXPECT_EQ(value_of(scheme, code), value_of(scheme, nearest_code(scheme, quotient)));
      const float value = value_of(scheme, code) - static_cast<float>(zero_point);
      EXPECT_EQ(decode(scheme, static_cast<uint8_t>(code), scale, zero_point), value * scale);
    }
  }
}

TEST(EncodeTest, SaturatesAndSurvivesNonFiniteQuotients) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    const float low = value_of(scheme, nearest_code(scheme, -1e4));
    const float high = value_of(scheme, nearest_code(scheme, 1e4));
    EXPECT_EQ(value_of(scheme, encode(scheme, kLargest, 1e-3f, 0)), high);  // infinite quotient
    EXPECT_EQ(value_of(scheme, encode(scheme, -kLargest, 1e-3f, 0)), low);
    EXPECT_EQ(value_of(scheme, encode(scheme, 1e30f, 1.0f, 0)), high);
    EXPECT_EQ(value_of(scheme, encode(scheme, -1e30f, 1.0f, 0)), low);
  }
}

TEST(EncodeTest, IntegerCodesAreOffset) {
  EXPECT_EQ(encode(Scheme::int4(), -8.0f, 1.0f, 0), 0);
  EXPECT_EQ(encode(Scheme::int4(), 7.0f, 1.0f, 0), 15);
  EXPECT_EQ(encode(Scheme::int8(), 0.0f, 1.0f, 0), 128);
  EXPECT_EQ(decode(Scheme::int8(), 0, 0.5f, 0), -64.0f);
  EXPECT_EQ(decode(Scheme::int4(0, false), 15, 0.5f, -8), 7.5f);
}

TEST(EncodeColumnTest, EqualsEncodeAndDecodeToTheBit) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  // All lengths around vector widths, then a long one.
  std::vector<int64_t> counts = {4099};
  for (int64_t count = 0; count <= 70; ++count) counts.push_back(count);
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    for (const int64_t count : counts) {
      std::vector<float> weight(count), scale(count), rounded(count + 1, 77.0f);
      std::vector<int8_t> zero_point(count);
      std::vector<uint8_t> codes(count + 1, 99);
      for (int64_t i = 0; i < count; ++i) {
        scale[i] = std::exp2(40 * normal(generator));
        weight[i] = scale[i] * std::exp2(4 * normal(generator)) * (i % 2 == 0 ? 1.0f : -1.0f);
        if (i % 16 == 3) weight[i] = -0.0f;
        if (i % 16 == 5) weight[i] = scale[i] * 2.5f;  // a tie
        zero_point[i] = scheme.symmetric ? 0 : static_cast<int8_t>(generator() % 16) - 8;
      }
      encode_column(scheme, weight.data(), scale.data(),
                    scheme.symmetric ? nullptr : zero_point.data(), count, codes.data(),
                    rounded.data());
      for (int64_t i = 0; i < count; ++i) {
        const uint8_t code = encode(scheme, weight[i], scale[i], zero_point[i]);
        ASSERT_EQ(codes[i], code) << weight[i] << " / " << scale[i];
        const float value = decode(scheme, code, scale[i], zero_point[i]);
        ASSERT_EQ(std::bit_cast<uint32_t>(rounded[i]), std::bit_cast<uint32_t>(value));
      }
      EXPECT_EQ(codes[count], 99);
      EXPECT_EQ(rounded[count], 77.0f);
    }
  }
}

}  // namespace
}  // namespace curvq
