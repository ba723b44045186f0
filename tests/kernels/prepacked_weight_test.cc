#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "curvq/formats/minifloat.h"
#include "curvq/kernels/linear.h"
#include "linear_testing.h"

namespace curvq {
namespace {

void expect_same(const QuantizedMatrix& a, const QuantizedMatrix& b) {
  EXPECT_EQ(a.grid.scheme, b.grid.scheme);
  EXPECT_EQ(a.rows(), b.rows());
  EXPECT_EQ(a.cols(), b.cols());
  EXPECT_EQ(a.grid.groups, b.grid.groups);
  EXPECT_EQ(a.grid.global_divisor, b.grid.global_divisor);
  EXPECT_EQ(a.grid.tensor_amax, b.grid.tensor_amax);
  EXPECT_EQ(a.grid.scale_codes, b.grid.scale_codes);
  EXPECT_EQ(a.grid.scales, b.grid.scales);
  EXPECT_EQ(a.grid.zero_points, b.grid.zero_points);
  EXPECT_EQ(a.row_bytes, b.row_bytes);
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.input_scale, b.input_scale);
}

TEST(PrepackedWeightTest, RoundTripsExactly) {
  for (const int64_t k : {60, 96, 172, 576}) {
    for (const Scheme& scheme : all_schemes_of(k)) {
      for (const int64_t n : {1, 16, 37}) {
        SCOPED_TRACE(scheme.describe() + ", k = " + std::to_string(k));
        QuantizedMatrix weight = random_matrix(scheme, n, k, 1);
        weight.input_scale = 1.5f;
        expect_same(PrepackedWeight(weight).unpack(), weight);
      }
    }
  }
  const QuantizedMatrix none = random_matrix(Scheme::nvfp4(), 0, 16, 2);
  expect_same(PrepackedWeight(none).unpack(), none);
}

TEST(PrepackedWeightTest, TakesTheMemoryOfThePackedWeight) {
  for (const Scheme& scheme : all_schemes_of(1536)) {
    SCOPED_TRACE(scheme.describe());
    const QuantizedMatrix weight = random_matrix(scheme, 570, 1536, 3);
    const double packed = static_cast<double>(weight.stored_bytes());
    const double panel = 16 * packed / 570;
    EXPECT_LE(static_cast<double>(PrepackedWeight(weight).memory_bytes()), 1.05 * packed + panel);
  }
  const QuantizedMatrix narrow = random_matrix(Scheme::int4(0), 1600, 172, 4);
  EXPECT_LE(static_cast<double>(PrepackedWeight(narrow).memory_bytes()),
            1.05 * static_cast<double>(narrow.stored_bytes()));
}

// Scales that differ from what their codes say are kept as they are.
TEST(PrepackedWeightTest, KeepsScalesThatCodesDoNotSay) {
  for (const Scheme& scheme : {Scheme::nvfp4(), with_scale_dtype(Scheme::int4(32), DType::kF16)}) {
    QuantizedMatrix weight = random_matrix(scheme, 20, 96, 5);
    weight.grid.scales[7] *= 1.0001f;
    expect_same(PrepackedWeight(weight).unpack(), weight);
    const std::vector<float> x = random_values(96, 6);
    const std::vector<float> out = run_linear(weight, x.data(), 1);
    const ExactProduct exact(weight, x.data(), 1, 96);
    for (int64_t j = 0; j < 20; ++j)
      EXPECT_NEAR(out[j], exact.value[j], 98 * kHalfUlp * exact.magnitude[j]);
  }
}

// All codes and scale codes that a file may hold, not only those that rounding gives.
TEST(PrepackedWeightTest, DecodesAllCodesAndScales) {
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::fp8(0)}) {
    SCOPED_TRACE(scheme.describe());
    constexpr int64_t kRows = 254;
    QuantizedMatrix weight = random_matrix(scheme, kRows, 256, 7);
    std::mt19937 generator(8);
    for (uint8_t& code : weight.codes) {
      code = static_cast<uint8_t>(generator());
      if (scheme.bits == 8 && (code & 127) == 127) code = 126;
    }
    for (size_t i = 0; i < weight.grid.scale_codes.size(); ++i) {
      const bool e4m3 = scheme.scale_type == ScaleType::kE4M3;
      const uint8_t code = static_cast<uint8_t>(e4m3 ? i % 126 + 1 : i % 250);
      weight.grid.scale_codes[i] = code;
      weight.grid.scales[i] =
          e4m3 ? e4m3_to_f32(code) / weight.grid.global_divisor : e8m0_to_f32(code);
    }
    expect_same(PrepackedWeight(weight).unpack(), weight);
    // One column at a time: what comes out is the weight.
    std::vector<float> w(kRows * 256), x(256 * 256, 0.0f);
    dequantize(weight, w.data());
    for (int64_t i = 0; i < 256; ++i) x[i * 256 + i] = 1;
    const std::vector<float> out = run_linear(weight, x.data(), 256);
    for (int64_t j = 0; j < kRows; ++j) {
      for (int64_t i = 0; i < 256; ++i) ASSERT_EQ(out[i * kRows + j], w[j * 256 + i]);
    }
  }
}

TEST(PrepackedWeightTest, NanCodesAreErrors) {
  QuantizedMatrix weight = random_matrix(Scheme::fp8(0), 4, 8, 9);
  weight.set_code(2, 5, 0xff);
  try {
    PrepackedWeight{weight};
    FAIL() << "no error";
  } catch (const NumericalError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("row 2, column 5"));
  }
  EXPECT_THROW(PrepackedWeight(random_matrix(Scheme::int8(0), 3, 0, 10)), UsageError);
}

}  // namespace
}  // namespace curvq
