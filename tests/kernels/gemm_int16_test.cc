#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "curvq/core/parallel.h"
#include "gemm_testing.h"

namespace curvq {
namespace {

std::vector<Scheme> integer_schemes() {
  return {Scheme::nvfp4(),          Scheme::mxfp4(),       Scheme::int4(32),
          Scheme::int4(48, false),  Scheme::int4(96),      Scheme::int4(0),
          Scheme::int4(0, false),   Scheme::int8(32),      Scheme::int8(0),
          Scheme::int8(192, false), Scheme::int8(0, false)};
}

// Columns of x that share a scale: whole groups, at most 256 columns (see gemm.h), or all of a
// longer group. A bound may take more than the kernel does.
int64_t panel_of(const Scheme& scheme, int64_t cols) {
  return scheme.group_size == 0 ? cols : std::max<int64_t>(scheme.group_size, 256);
}

// sum |w| (s / 2 + (k + 8) 2^-24 |x|) with s = amax / 32767 of all columns within a panel's length.
double error_bound(const QuantizedMatrix& weight, const float* x, int64_t row) {
  const int64_t k = weight.cols(), panel = panel_of(weight.scheme(), k);
  std::vector<float> w(k);
  dequantize_row(weight, row, 0, k, w.data());
  double bound = 0;
  for (int64_t c = 0; c < k; ++c) {
    const int64_t begin = std::max<int64_t>(0, c - panel + 1), end = std::min(k, c + panel);
    const double step = max_abs(x + begin, end - begin) / 32767.0;
    bound +=
        std::fabs(w[c]) * (0.5001 * step + static_cast<double>(k + 8) * kHalfUlp * std::fabs(x[c]));
  }
  return bound;
}

void expect_within_bound(const QuantizedMatrix& weight, int64_t m, unsigned seed) {
  const int64_t n = weight.rows(), k = weight.cols(), ldx = k + 3, ldout = n + 2;
  std::vector<float> x = random_values(m * ldx, seed);
  for (int64_t i = 0; i < m; ++i) x[i * ldx + i % k] *= 100;  // an outlier a row
  const float untouched = 12345.0f;
  std::vector<float> out(m * ldout, untouched);
  std::vector<double> expected(m * n);
  packed_gemm_int16(weight, x.data(), m, ldx, out.data(), ldout);
  packed_gemm_reference(weight, x.data(), m, ldx, expected.data(), n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_LE(std::fabs(out[i * ldout + j] - expected[i * n + j]),
                error_bound(weight, x.data() + i * ldx, j))
          << "row " << i << ", column " << j;
    }
    for (int64_t j = n; j < ldout; ++j) EXPECT_EQ(out[i * ldout + j], untouched);
  }
}

class Int16PathTest : public CpuPathTest {};

TEST_P(Int16PathTest, WithinBoundForAllSchemes) {
  for (const Scheme& scheme : integer_schemes()) {
    SCOPED_TRACE(scheme.describe());
    expect_within_bound(random_matrix(scheme, 37, 576, 1), 5, 2);
  }
}

TEST_P(Int16PathTest, WithinBoundForAllShapes) {
  for (int64_t m = 1; m <= 33; ++m) {
    for (const int64_t n : {1, 15, 16, 17, 80}) {
      SCOPED_TRACE("m = " + std::to_string(m) + ", n = " + std::to_string(n));
      expect_within_bound(random_matrix(Scheme::nvfp4(), n, 48, 3), m, 4);
    }
  }
}

TEST_P(Int16PathTest, WithinBoundForOddAndLongGroups) {
  for (const int64_t k : {1, 2, 7, 17, 172, 255, 257, 513, 1000}) {
    SCOPED_TRACE("k = " + std::to_string(k));
    expect_within_bound(random_matrix(Scheme::int4(0, false), 19, k, 5), 4, 6);
    expect_within_bound(random_matrix(Scheme::int8(0), 19, k, 7), 4, 8);
  }
  expect_within_bound(random_matrix(Scheme::int4(15), 19, 30, 9), 4, 10);
  expect_within_bound(random_matrix(Scheme::int4(301, false), 19, 602, 11), 4, 12);
}

TEST_P(Int16PathTest, WithinBoundForManyRows) {
  expect_within_bound(random_matrix(Scheme::mxfp4(), 130, 320, 13), 400, 14);
}

// The largest products and sums that can occur, of one sign: 256 columns of -255 times 32767.
TEST_P(Int16PathTest, LargestSumsDoNotOverflow) {
  ScaleGrid grid;
  grid.scheme = Scheme::int8(0, false);
  grid.rows = 3;
  grid.cols = 512;
  grid.groups = 1;
  grid.scales.assign(3, 1.0f);
  grid.zero_points.assign(3, 127);
  QuantizedMatrix weight(grid);
  std::fill(weight.codes.begin(), weight.codes.end(), uint8_t{0});
  const std::vector<float> x(2 * 512, 32767.0f);
  std::vector<float> out(2 * 3);
  packed_gemm_int16(weight, x.data(), 2, 512, out.data(), 3);
  for (const float v : out) EXPECT_FLOAT_EQ(v, -255.0f * 512 * 32767);
}

TEST_P(Int16PathTest, ExactOnIntegers) {
  // One 32767 a row makes the scale 1; it meets a weight of zero.
  ScaleGrid grid;
  grid.scheme = Scheme::int8(0);
  grid.rows = 21;
  grid.cols = 172;
  grid.groups = 1;
  grid.scales.assign(21, 1.0f);
  QuantizedMatrix weight(grid);
  std::mt19937 generator(15);
  for (uint8_t& code : weight.codes) code = static_cast<uint8_t>(generator() % 256);
  for (int64_t j = 0; j < 21; ++j) weight.set_code(j, 100, 128);
  std::vector<float> x(6 * 172);
  for (float& v : x) v = static_cast<float>(static_cast<int>(generator() % 41) - 20);
  for (int64_t i = 0; i < 6; ++i) x[i * 172 + 100] = 32767;
  std::vector<float> out(6 * 21);
  packed_gemm_int16(weight, x.data(), 6, 172, out.data(), 21);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 21; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < 172; ++k)
        sum += (weight.code(j, k) - 128) * static_cast<int64_t>(x[i * 172 + k]);
      EXPECT_EQ(out[i * 21 + j], static_cast<float>(sum));
    }
  }
}

TEST_P(Int16PathTest, IndependentOfNumberOfThreadsAndOtherRows) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 203, 320, 16);
  const std::vector<float> x = random_values(29 * 320, 17);
  const int threads = num_threads();
  std::vector<float> first(29 * 203), alone(203);
  set_num_threads(1);
  packed_gemm_int16(weight, x.data(), 29, 320, first.data(), 203);
  for (const int count : {2, 3, 7}) {
    std::vector<float> out(29 * 203);
    set_num_threads(count);
    packed_gemm_int16(weight, x.data(), 29, 320, out.data(), 203);
    EXPECT_EQ(out, first) << count << " threads";
  }
  set_num_threads(threads);
  for (int64_t i = 0; i < 29; ++i) {
    packed_gemm_int16(weight, x.data() + i * 320, 1, 320, alone.data(), 203);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), first.begin() + i * 203));
  }
}

TEST_P(Int16PathTest, RowsThatAreNotFiniteGiveNanAndOthersDoNot) {
  const QuantizedMatrix weight = random_matrix(Scheme::int4(32), 18, 64, 18);
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = random_values(3 * 64, 19), out(3 * 18);
    x[64 + 63] = bad;
    packed_gemm_int16(weight, x.data(), 3, 64, out.data(), 18);
    for (int64_t j = 0; j < 18; ++j) {
      EXPECT_TRUE(std::isfinite(out[j]));
      EXPECT_TRUE(std::isnan(out[18 + j]));
      EXPECT_TRUE(std::isfinite(out[36 + j]));
    }
  }
}

TEST_P(Int16PathTest, ZerosAndTheSmallestNumbersGiveZeros) {
  const QuantizedMatrix weight = random_matrix(Scheme::mxfp4(), 5, 64, 20);
  std::vector<float> x(2 * 64, 0.0f), out(2 * 5, 1.0f);
  x[64] = std::numeric_limits<float>::denorm_min();
  packed_gemm_int16(weight, x.data(), 2, 64, out.data(), 5);
  EXPECT_EQ(out, std::vector<float>(2 * 5, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(Paths, Int16PathTest, kAllCpuPaths, cpu_path_name);

TEST(Int16Test, ErrorIsBelowThatOfBfloat16) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 64, 1536, 21);
  std::vector<float> x = random_values(32 * 1536, 22), rounded = x;
  for (int64_t i = 0; i < 32; ++i) x[i * 1536 + 40 * i] = rounded[i * 1536 + 40 * i] = 300.7f;
  for (float& v : rounded) {  // to 8 significant bits
    int exponent;
    const float mantissa = std::frexp(v, &exponent);
    v = std::ldexp(std::nearbyint(mantissa * 256) / 256, exponent);
  }
  std::vector<double> exact(32 * 64), bfloat16(32 * 64);
  std::vector<float> int16(32 * 64);
  packed_gemm_reference(weight, x.data(), 32, 1536, exact.data(), 64);
  packed_gemm_reference(weight, rounded.data(), 32, 1536, bfloat16.data(), 64);
  packed_gemm_int16(weight, x.data(), 32, 1536, int16.data(), 64);
  double error16 = 0, error_bf16 = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error16 += std::pow(int16[i] - exact[i], 2);
    error_bf16 += std::pow(bfloat16[i] - exact[i], 2);
  }
  EXPECT_LT(error16, error_bf16 / 4);
}

TEST(Int16Test, Fp8AndWrongArgumentsAreErrors) {
  const std::vector<float> x(16);
  std::vector<float> out(6);
  const QuantizedMatrix fp8 = random_matrix(Scheme::fp8(0), 3, 8, 23);
  EXPECT_FALSE(has_int16_path(fp8.scheme()));
  EXPECT_THROW(packed_gemm_int16(fp8, x.data(), 2, 8, out.data(), 3), UnsupportedError);
  const QuantizedMatrix int8 = random_matrix(Scheme::int8(0), 3, 8, 24);
  EXPECT_THROW(packed_gemm_int16(int8, x.data(), 2, 7, out.data(), 3), UsageError);
  EXPECT_THROW(packed_gemm_int16(int8, nullptr, 2, 8, out.data(), 3), UsageError);
  EXPECT_NO_THROW(packed_gemm_int16(int8, nullptr, 0, 8, nullptr, 3));
  const QuantizedMatrix no_columns = random_matrix(Scheme::int8(0), 3, 0, 25);
  std::vector<float> ones(6, 1.0f);
  packed_gemm_int16(no_columns, nullptr, 2, 0, ones.data(), 3);
  EXPECT_EQ(ones, std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace curvq
