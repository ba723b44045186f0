// Quantizing and dequantizing whole matrices, whose loops are vectorised, beside the same
// arithmetic one element at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"

namespace curvq {
namespace {

// All formats of rule curvq, groups that have loops of their own and others.
std::vector<Scheme> schemes() {
  std::vector<Scheme> all = {Scheme::nvfp4(), Scheme::int4(32), Scheme::int4(96, false),
                             Scheme::int4(0), Scheme::int8(16), Scheme::int8(0, false),
                             Scheme::fp8(32), Scheme::fp8(0)};
  for (const MxRule rule : {MxRule::kFloor, MxRule::kEven, MxRule::kCeil, MxRule::kRceil}) {
    all.push_back(Scheme::mxfp4());
    all.back().mx_rule = rule;
  }
  return all;
}

// Zeros, subnormals, the largest, powers of two and their neighbours, and what lies between codes.
std::vector<float> special_values() {
  const float largest = std::numeric_limits<float>::max();
  std::vector<float> values = {0.0f,         -0.0f,   0x1p-149f, -0x1p-149f, 0x1p-126f,
                               -0x1.8p-127f, largest, -largest,  largest / 3};
  for (const int exponent : {-130, -60, -9, -6, -1, 0, 1, 2, 8, 60, 120}) {
    for (const float m : {1.0f, 1.25f, 1.5f, 1.75f, 1.875f, 1.9375f, 3.5f / 2, 5.0f / 4}) {
      const float v = std::ldexp(m, exponent);
      for (const float w : {v, std::nextafter(v, 0.0f), std::nextafter(v, largest)}) {
        values.push_back(w);
        values.push_back(-w);
      }
    }
  }
  return values;
}

// [rows, 96]: rows of random special values, of one magnitude mixed with ties of it, and plain.
std::vector<float> weights(int64_t rows, unsigned seed) {
  std::mt19937 generator(seed);
  const std::vector<float> special = special_values();
  std::normal_distribution<float> normal;
  std::vector<float> all(rows * 96);
  for (int64_t r = 0; r < rows; ++r) {
    const float unit = std::ldexp(1.0f, static_cast<int>(generator() % 40) - 20);
    for (int64_t c = 0; c < 96; ++c) {
      float& w = all[r * 96 + c];
      if (r % 4 == 0) w = special[generator() % special.size()];
      if (r % 4 == 1) w = unit * (static_cast<float>(generator() % 49) - 24) / 4;  // quarters to 6
      if (r % 4 == 2) w = unit * normal(generator);
      if (r % 4 == 3) w = c / 16 % 2 == 0 ? 0.0f : 0x1p-149f * static_cast<float>(generator() % 9);
    }
  }
  return all;
}

uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }

TEST(ConversionTest, WholeMatricesGiveTheBitsOfSingleElements) {
  constexpr int64_t kRows = 64, kCols = 96;
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme.describe());
    const std::vector<float> w = weights(kRows, 1);
    const float amax = max_abs(w.data(), kRows * kCols);
    const QuantizedMatrix matrix = quantize_rtn(w.data(), kRows, kCols, scheme, amax);
    const ScaleGrid grid = make_scale_grid(w.data(), kRows, kCols, scheme, amax);
    EXPECT_EQ(matrix.grid.scale_codes, grid.scale_codes);
    EXPECT_EQ(matrix.grid.zero_points, grid.zero_points);
    EXPECT_EQ(matrix.codes, quantize_rtn(w.data(), grid).codes);
    std::vector<float> back(kRows * kCols);
    dequantize(matrix, back.data());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        const int64_t g = scheme.group_of(c);
        const float scale = matrix.grid.scale(r, g);
        ASSERT_EQ(bits_of(scale), bits_of(grid.scale(r, g)));
        const uint8_t code = encode(scheme, w[r * kCols + c], scale, grid.zero_point(r, g));
        ASSERT_EQ(matrix.code(r, c), code) << w[r * kCols + c] << " / " << scale;
        ASSERT_EQ(bits_of(back[r * kCols + c]),
                  bits_of(decode(scheme, code, scale, grid.zero_point(r, g))));
      }
    }
  }
}

TEST(ConversionTest, Nvfp4ScalesAreThoseOfTheFormula) {
  constexpr int64_t kRows = 64, kCols = 96;
  for (const float larger : {1.0f, 1e-3f, 1e20f}) {  // of the tensor's weights outside this one
    std::vector<float> w = weights(kRows, 2);
    for (float& v : w) v = std::fabs(v) > 1e18f ? 1.0f : v;
    const float amax = std::max(larger, max_abs(w.data(), kRows * kCols));
    const ScaleGrid grid = make_scale_grid(w.data(), kRows, kCols, Scheme::nvfp4(), amax);
    for (int64_t b = 0; b < kRows * kCols / 16; ++b) {
      float most = 0;
      for (int64_t i = 0; i < 16; ++i) most = std::max(most, std::fabs(w[b * 16 + i]));
      const float divisor = 2688.0f / amax;
      uint8_t code = f32_to_e4m3(divisor * most / 6.0f);
      if (code == 0) code = most == 0 ? 0x20 : 1;
      ASSERT_EQ(grid.scale_codes[b], code) << most;
      ASSERT_EQ(bits_of(grid.scales[b]), bits_of(e4m3_to_f32(code) / divisor));
    }
  }
}

// Against the nearest of the eight values by comparison in double precision; 6 for all above.
TEST(ConversionTest, Fp4CodesAreTheNearest) {
  const double values[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0u, 1u, 0xffffu}) {
      const float w = std::bit_cast<float>(high << 16 | low);
      if (!std::isfinite(w)) continue;
      const double magnitude = std::min(std::fabs(static_cast<double>(w)), 7.0);
      uint8_t best = 0;
      for (uint8_t i = 1; i < 8; ++i) {
        const double d = std::fabs(magnitude - values[i]), e = std::fabs(magnitude - values[best]);
        if (d < e || (d == e && i % 2 == 0)) best = i;
      }
      if (best > 0 && std::signbit(w)) best |= 8;
      ASSERT_EQ(encode(Scheme::nvfp4(), w, 1.0f, 0), best) << w;
    }
  }
}

TEST(ConversionTest, WhatIsNotFiniteIsNamedWhereItIs) {
  for (const Scheme& scheme : schemes()) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> w(3 * 96, 1.0f);
      w[96 + 17] = w[2 * 96] = bad;
      try {
        quantize_rtn(w.data(), 3, 96, scheme, bad);
        FAIL() << scheme.describe();
      } catch (const NumericalError& e) {
        EXPECT_THAT(e.what(), testing::HasSubstr("row 1, column 17"));
      }
    }
  }
}

}  // namespace
}  // namespace curvq
