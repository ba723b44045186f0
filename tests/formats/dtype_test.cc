#include "curvq/formats/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "curvq/core/error.h"

namespace curvq {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

constexpr DType kAll[] = {DType::kF64,    DType::kF32,    DType::kF16,    DType::kBF16,
                          DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0, DType::kI64,
                          DType::kI32,    DType::kI16,    DType::kI8,     DType::kU64,
                          DType::kU32,    DType::kU16,    DType::kU8,     DType::kBool};

TEST(DTypeTest, NamesRoundTrip) {
  std::set<std::string_view> names;
  for (const DType dtype : kAll) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    names.insert(dtype_name(dtype));
  }
  EXPECT_EQ(names.size(), std::size(kAll));
  EXPECT_EQ(dtype_name(DType::kF8E4M3), "F8_E4M3");
  EXPECT_EQ(parse_dtype("BOOL"), DType::kBool);
  EXPECT_EQ(parse_dtype("f32"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DTypeTest, BytesAndFloatingPoint) {
  EXPECT_EQ(dtype_bytes(DType::kF64), 8u);
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kF8E8M0), 1u);
  EXPECT_EQ(dtype_bytes(DType::kU16), 2u);
  for (const DType dtype : kAll) {
    const bool expected = dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
                          dtype == DType::kBF16;
    EXPECT_EQ(is_floating_point(dtype), expected) << dtype_name(dtype);
  }
}

// IEEE value of sign, exponent and mantissa bits, in double.
double ieee_value(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int e = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1 << mantissa_bits) - 1), -mantissa_bits);
  const double magnitude =
      e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
  return bits >> 15 ? -magnitude : magnitude;
}

struct Half {
  const char* name;
  int exponent_bits, mantissa_bits;
  uint16_t infinity;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

class HalfTest : public ::testing::TestWithParam<Half> {};

TEST_P(HalfTest, EveryPatternRoundTrips) {
  const Half& h = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = h.widen(half);
    if ((half & 0x7fff) > h.infinity) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_GT(h.narrow(value) & 0x7fff, h.infinity) << bits;
    } else {
      if ((half & 0x7fff) == h.infinity) {
        EXPECT_EQ(value, half >> 15 ? -kInf : kInf);
      } else {
        EXPECT_EQ(value, ieee_value(half, h.exponent_bits, h.mantissa_bits)) << bits;
        EXPECT_EQ(std::signbit(value), half >> 15) << bits;
      }
      EXPECT_EQ(h.narrow(value), half) << bits;
    }
  }
}

TEST_P(HalfTest, EveryMidpointRoundsToEven) {
  const Half& h = GetParam();
  for (uint32_t bits = 0; bits < h.infinity; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    // Behind the largest value lies infinity, as if the exponents went on.
    const double middle = (ieee_value(low, h.exponent_bits, h.mantissa_bits) +
                           ieee_value(high, h.exponent_bits, h.mantissa_bits)) /
                          2;
    const float value = static_cast<float>(middle);
    ASSERT_EQ(value, middle);
    EXPECT_EQ(h.narrow(value), low % 2 == 0 ? low : high) << bits;
    EXPECT_EQ(h.narrow(-value), (low % 2 == 0 ? low : high) | 0x8000) << bits;
    EXPECT_EQ(h.narrow(std::nextafter(value, 0.0f)), low) << bits;
    EXPECT_EQ(h.narrow(std::nextafter(value, kInf)), high) << bits;
  }
}

TEST_P(HalfTest, InfinityAndNanStay) {
  const Half& h = GetParam();
  EXPECT_EQ(h.narrow(kInf), h.infinity);
  EXPECT_EQ(h.narrow(-kInf), h.infinity | 0x8000);
  EXPECT_EQ(h.narrow(std::numeric_limits<float>::max()), h.infinity);
  // A NaN whose payload lies in the bits that are dropped.
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(h.widen(h.narrow(std::bit_cast<float>(bits)))));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfTest,
                         ::testing::Values(Half{"F16", 5, 10, 0x7c00, f16_to_f32, f32_to_f16},
                                           Half{"BF16", 8, 7, 0x7f80, bf16_to_f32, f32_to_bf16}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DTypeTest, RoundToDtype) {
  EXPECT_EQ(round_to_dtype(1.0f + 0x1p-9f, DType::kF32), 1.0f + 0x1p-9f);
  EXPECT_EQ(round_to_dtype(1.0f + 0x1p-9f, DType::kF16), 1.0f + 0x1p-9f);
  EXPECT_EQ(round_to_dtype(1.0f + 0x1p-9f, DType::kBF16), 1.0f);
  EXPECT_EQ(round_to_dtype(1.0f + 0x1p-11f, DType::kF16), 1.0f);  // a tie
  EXPECT_THROW(round_to_dtype(1.0f, DType::kI8), UnsupportedError);
}

template <class T>
std::vector<float> converted(DType dtype, const std::vector<T>& values) {
  // Behind one byte, so that nothing is aligned.
  std::string bytes = " ";
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  std::vector<float> out(values.size());
  convert_to_f32(dtype, bytes.data() + 1, values.size(), out.data());
  return out;
}

TEST(DTypeTest, ConvertToF32) {
  using Floats = std::vector<float>;
  EXPECT_EQ(converted<float>(DType::kF32, {1.5f, -0x1p-149f}), (Floats{1.5f, -0x1p-149f}));
  EXPECT_EQ(converted<double>(DType::kF64, {0.1, 1e300, -2.0}), (Floats{0.1f, kInf, -2.0f}));
  EXPECT_EQ(converted<uint16_t>(DType::kF16, {0x3c00, 0x0001}), (Floats{1.0f, 0x1p-24f}));
  EXPECT_EQ(converted<uint16_t>(DType::kBF16, {0x3f80, 0xc000}), (Floats{1.0f, -2.0f}));
  EXPECT_EQ(converted<uint8_t>(DType::kF8E4M3, {0x7e, 0x81}), (Floats{448.0f, -0x1p-9f}));
  EXPECT_EQ(converted<uint8_t>(DType::kF8E5M2, {0x7b, 0x01}), (Floats{57344.0f, 0x1p-16f}));
  EXPECT_EQ(converted<uint8_t>(DType::kF8E8M0, {127, 0}), (Floats{1.0f, 0x1p-127f}));
  EXPECT_EQ(converted<int64_t>(DType::kI64, {-5, (int64_t{1} << 24) + 1}), (Floats{-5, 0x1p24f}));
  EXPECT_EQ(converted<int32_t>(DType::kI32, {INT32_MIN, 7}), (Floats{-0x1p31f, 7}));
  EXPECT_EQ(converted<int16_t>(DType::kI16, {-32768, 9}), (Floats{-32768, 9}));
  EXPECT_EQ(converted<int8_t>(DType::kI8, {-128, 127}), (Floats{-128, 127}));
  EXPECT_EQ(converted<uint64_t>(DType::kU64, {UINT64_MAX, 1}), (Floats{0x1p64f, 1}));
  EXPECT_EQ(converted<uint32_t>(DType::kU32, {UINT32_MAX, 1}), (Floats{0x1p32f, 1}));
  EXPECT_EQ(converted<uint16_t>(DType::kU16, {65535, 1}), (Floats{65535, 1}));
  EXPECT_EQ(converted<uint8_t>(DType::kU8, {255, 1}), (Floats{255, 1}));
  EXPECT_THROW(converted<uint8_t>(DType::kBool, {1}), UnsupportedError);
}

// Long enough for vectorised loops and their tails.
TEST(DTypeTest, ConversionsOfManyEqualConversionsOfOne) {
  std::vector<uint16_t> halves(65536 - 3);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto widen = dtype == DType::kF16 ? f16_to_f32 : bf16_to_f32;
    const auto narrow = dtype == DType::kF16 ? f32_to_f16 : f32_to_bf16;
    const std::vector<float> wide = converted(dtype, halves);
    std::vector<uint16_t> back(halves.size());
    convert_from_f32(dtype, wide.data(), wide.size(), back.data());
    for (size_t i = 0; i < halves.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(widen(halves[i])));
      EXPECT_EQ(back[i], narrow(wide[i]));
    }
  }
}

TEST(DTypeTest, ConvertFromF32) {
  const float values[] = {1.0f, -70000.0f, 0x1p-30f};
  uint16_t halves[3];
  convert_from_f32(DType::kF16, values, 3, halves);
  EXPECT_EQ(halves[0], 0x3c00);
  EXPECT_EQ(halves[1], 0xfc00);
  EXPECT_EQ(halves[2], 0);
  double doubles[3];
  convert_from_f32(DType::kF64, values, 3, doubles);
  EXPECT_EQ(doubles[2], 0x1p-30);
  float floats[3];
  convert_from_f32(DType::kF32, values, 3, floats);
  EXPECT_EQ(floats[1], -70000.0f);
  EXPECT_THROW(convert_from_f32(DType::kI8, values, 3, floats), UnsupportedError);
}

TEST(DTypeTest, NothingToConvert) {
  EXPECT_NO_THROW(convert_to_f32(DType::kF32, nullptr, 0, nullptr));
  EXPECT_NO_THROW(convert_from_f32(DType::kF32, nullptr, 0, nullptr));
}

}  // namespace
}  // namespace curvq
