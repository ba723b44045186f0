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

struct Arithmetic {
  const char* name;
  void (*gemm)(const QuantizedMatrix&, const float*, int64_t, int64_t, float*, int64_t);
  bool (*has)(const Scheme&);
  float largest;   // integer that x is rounded to
  int64_t shared;  // columns of x, at most, that share a scale, or a whole group; see gemm.h
};

const Arithmetic k16Bits{"int16", packed_gemm_int16, has_int16_path, 32767, 256};
const Arithmetic k8Bits{"int8", packed_gemm_int8, has_int8_path, 127, 32};

// sum |w| (s / 2 + (k + 8) 2^-24 |x|) with s = amax / largest of all columns that can share a scale
// with this one: 16 bits take whole groups together, 8 bits cut long ones.
double error_bound(const Arithmetic& arithmetic, const QuantizedMatrix& weight, const float* x,
                   int64_t row) {
  const int64_t k = weight.cols(),
                group = weight.scheme().group_size == 0 ? k : weight.scheme().group_size;
  const int64_t panel = arithmetic.largest > 127 ? std::max(group, arithmetic.shared)
                                                 : std::min(group, arithmetic.shared);
  std::vector<float> w(k);
  dequantize_row(weight, row, 0, k, w.data());
  double bound = 0;
  for (int64_t c = 0; c < k; ++c) {
    const int64_t begin = std::max<int64_t>(0, c - panel + 1), end = std::min(k, c + panel);
    const double step = max_abs(x + begin, end - begin) / arithmetic.largest;
    bound +=
        std::fabs(w[c]) * (0.5001 * step + static_cast<double>(k + 8) * kHalfUlp * std::fabs(x[c]));
  }
  return bound;
}

void expect_within_bound(const Arithmetic& arithmetic, const QuantizedMatrix& weight, int64_t m,
                         unsigned seed) {
  if (!arithmetic.has(weight.scheme())) return;
  const int64_t n = weight.rows(), k = weight.cols(), ldx = k + 3, ldout = n + 2;
  std::vector<float> x = random_values(m * ldx, seed);
  for (int64_t i = 0; i < m; ++i) x[i * ldx + i % k] *= 100;  // an outlier a row
  const float untouched = 12345.0f;
  std::vector<float> out(m * ldout, untouched);
  std::vector<double> expected(m * n);
  arithmetic.gemm(weight, x.data(), m, ldx, out.data(), ldout);
  packed_gemm_reference(weight, x.data(), m, ldx, expected.data(), n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_LE(std::fabs(out[i * ldout + j] - expected[i * n + j]),
                error_bound(arithmetic, weight, x.data() + i * ldx, j))
          << "row " << i << ", column " << j;
    }
    for (int64_t j = n; j < ldout; ++j) EXPECT_EQ(out[i * ldout + j], untouched);
  }
}

class IntegerPathTest : public ::testing::TestWithParam<std::tuple<const char*, Arithmetic>> {
 protected:
  void SetUp() override {
    const char* path = std::get<0>(GetParam());
    if (!machine_has(path)) GTEST_SKIP() << "this machine has no " << path;
    forced_ = std::make_unique<ForcedPath>(path);
  }

  const Arithmetic& arithmetic() const { return std::get<1>(GetParam()); }

  void expect_within_bound(const QuantizedMatrix& weight, int64_t m, unsigned seed) const {
    curvq::expect_within_bound(arithmetic(), weight, m, seed);
  }

 private:
  std::unique_ptr<ForcedPath> forced_;
};

TEST_P(IntegerPathTest, WithinBoundForAllSchemes) {
  for (const Scheme& scheme : integer_schemes()) {
    SCOPED_TRACE(scheme.describe());
    expect_within_bound(random_matrix(scheme, 37, 576, 1), 5, 2);
  }
}

TEST_P(IntegerPathTest, WithinBoundForAllShapes) {
  for (int64_t m = 1; m <= 33; ++m) {
    for (const int64_t n : {1, 15, 16, 17, 80}) {
      SCOPED_TRACE("m = " + std::to_string(m) + ", n = " + std::to_string(n));
      expect_within_bound(random_matrix(Scheme::nvfp4(), n, 48, 3), m, 4);
    }
  }
}

TEST_P(IntegerPathTest, WithinBoundForOddAndLongGroups) {
  for (const int64_t k : {1, 2, 7, 17, 172, 255, 257, 513, 1000}) {
    SCOPED_TRACE("k = " + std::to_string(k));
    expect_within_bound(random_matrix(Scheme::int4(0, false), 19, k, 5), 4, 6);
    expect_within_bound(random_matrix(Scheme::int8(0), 19, k, 7), 4, 8);
  }
  expect_within_bound(random_matrix(Scheme::int4(15), 19, 30, 9), 4, 10);
  expect_within_bound(random_matrix(Scheme::int4(301, false), 19, 602, 11), 4, 12);
}

TEST_P(IntegerPathTest, WithinBoundForManyRows) {
  expect_within_bound(random_matrix(Scheme::mxfp4(), 130, 320, 13), 400, 14);
}

// The largest products and sums that can occur, of one sign.
TEST_P(IntegerPathTest, LargestSumsDoNotOverflow) {
  const bool eight = arithmetic().largest == 127;
  ScaleGrid grid;
  grid.scheme = eight ? Scheme::int4(0, false) : Scheme::int8(0, false);
  grid.rows = 3;
  grid.cols = 512;
  grid.groups = 1;
  grid.scales.assign(3, 1.0f);
  grid.zero_points.assign(3, eight ? 7 : 127);  // weights of -15, -255
  for (const float sign : {1.0f, -1.0f}) {
    QuantizedMatrix weight(grid);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 512; ++j) weight.set_code(i, j, 0);
    }
    const std::vector<float> x(2 * 512, sign * arithmetic().largest);
    std::vector<float> out(2 * 3);
    arithmetic().gemm(weight, x.data(), 2, 512, out.data(), 3);
    for (const float v : out)
      EXPECT_FLOAT_EQ(v, sign * (eight ? -15.0f : -255.0f) * 512 * arithmetic().largest);
  }
}

// Every block has a column with a weight of zero and the largest integer, so that scales are 1.
TEST_P(IntegerPathTest, ExactOnIntegers) {
  for (const int bits : {4, 8}) {
    ScaleGrid grid;
    grid.scheme = bits == 4 ? Scheme::int4(0) : Scheme::int8(0);
    if (!arithmetic().has(grid.scheme)) continue;
    grid.rows = 21;
    grid.cols = 172;
    grid.groups = 1;
    grid.scales.assign(21, 1.0f);
    QuantizedMatrix weight(grid);
    const int zero = 1 << (bits - 1);
    std::mt19937 generator(15);
    std::vector<float> x(6 * 172);
    for (float& v : x) v = static_cast<float>(static_cast<int>(generator() % 41) - 20);
    for (int64_t k = 0; k < 172; ++k) {
      for (int64_t j = 0; j < 21; ++j) {
        const int value = k % 16 == 5 ? 0 : static_cast<int>(generator() % (2 * zero)) - zero;
        weight.set_code(j, k, static_cast<uint8_t>(value + zero));
      }
      for (int64_t i = 0; i < 6 && k % 16 == 5; ++i) x[i * 172 + k] = arithmetic().largest;
    }
    std::vector<float> out(6 * 21);
    std::vector<double> expected(6 * 21);
    arithmetic().gemm(weight, x.data(), 6, 172, out.data(), 21);
    packed_gemm_reference(weight, x.data(), 6, 172, expected.data(), 21);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], expected[i]);
  }
}

TEST_P(IntegerPathTest, IndependentOfNumberOfThreadsAndOtherRows) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 203, 320, 16);
  const std::vector<float> x = random_values(29 * 320, 17);
  const int threads = num_threads();
  std::vector<float> first(29 * 203), alone(203);
  set_num_threads(1);
  arithmetic().gemm(weight, x.data(), 29, 320, first.data(), 203);
  for (const int count : {2, 3, 7}) {
    std::vector<float> out(29 * 203);
    set_num_threads(count);
    arithmetic().gemm(weight, x.data(), 29, 320, out.data(), 203);
    EXPECT_EQ(out, first) << count << " threads";
  }
  set_num_threads(threads);
  for (int64_t i = 0; i < 29; ++i) {
    arithmetic().gemm(weight, x.data() + i * 320, 1, 320, alone.data(), 203);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), first.begin() + i * 203));
  }
}

TEST_P(IntegerPathTest, RowsThatAreNotFiniteGiveNanAndOthersDoNot) {
  const QuantizedMatrix weight = random_matrix(Scheme::int4(32), 18, 64, 18);
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = random_values(3 * 64, 19), out(3 * 18);
    x[64 + 63] = bad;
    arithmetic().gemm(weight, x.data(), 3, 64, out.data(), 18);
    for (int64_t j = 0; j < 18; ++j) {
      EXPECT_TRUE(std::isfinite(out[j]));
      EXPECT_TRUE(std::isnan(out[18 + j]));
      EXPECT_TRUE(std::isfinite(out[36 + j]));
    }
  }
}

TEST_P(IntegerPathTest, ZerosAndTheSmallestNumbersGiveZeros) {
  const QuantizedMatrix weight = random_matrix(Scheme::mxfp4(), 5, 64, 20);
  std::vector<float> x(2 * 64, 0.0f), out(2 * 5, 1.0f);
  x[64] = std::numeric_limits<float>::denorm_min();
  arithmetic().gemm(weight, x.data(), 2, 64, out.data(), 5);
  EXPECT_EQ(out, std::vector<float>(2 * 5, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(
    Paths, IntegerPathTest, ::testing::Combine(kAllCpuPaths, ::testing::Values(k16Bits, k8Bits)),
    [](const ::testing::TestParamInfo<std::tuple<const char*, Arithmetic>>& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
    });

// Rounding x to a step of amax / 127 a block is an error of (amax / 127)^2 / 12 in the mean square;
// 8 significant bits, one of 2^-16 / 12 (|x| / m)^2 with m in [1/2, 1), |x| = m 2^e. What outputs
// make of both is the same sum over the weights.
TEST(IntegerTest, ErrorsComparedWithBfloat16) {
  constexpr int64_t m = 256, n = 64, k = 1536;
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), n, k, 21);
  std::vector<float> x = random_values(m * k, 22), rounded = x;
  double step_int8 = 0, step_bf16 = 0;
  for (int64_t i = 0; i < m * k; ++i) {
    int exponent;
    const float mantissa = std::frexp(x[i], &exponent);
    rounded[i] = std::ldexp(std::nearbyint(mantissa * 256) / 256, exponent);
    step_bf16 += std::pow(std::ldexp(1.0, exponent - 8), 2);
    step_int8 += std::pow(max_abs(x.data() + i / 16 * 16, 16) / 127.0, 2);
  }
  std::vector<double> exact(m * n), of_rounded(m * n);
  packed_gemm_reference(weight, x.data(), m, k, exact.data(), n);
  packed_gemm_reference(weight, rounded.data(), m, k, of_rounded.data(), n);
  const auto error = [&](const auto& out) {
    double sum = 0;
    for (size_t i = 0; i < exact.size(); ++i) sum += std::pow(out[i] - exact[i], 2);
    return sum;
  };
  std::vector<float> int16(m * n), int8(m * n);
  packed_gemm_int16(weight, x.data(), m, k, int16.data(), n);
  packed_gemm_int8(weight, x.data(), m, k, int8.data(), n);
  const double bfloat16 = error(of_rounded);
  // m n = 16384 squared errors, of which those of a row of x share its roundings: their mean's
  // standard error is below sqrt(2 / m) = 9 % even if all of a row were one.
  EXPECT_NEAR(error(int8) / bfloat16, step_int8 / step_bf16, 0.27 * step_int8 / step_bf16);
  EXPECT_LT(std::sqrt(error(int8) / bfloat16), 5);
  EXPECT_LT(error(int16), bfloat16 / 100);
}

TEST(IntegerTest, OneOutlierMovesIntegersLessThanBfloat16) {
  // The worst value for 8 significant bits lies halfway between two of them: error amax / 512.
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 64, 256, 26);
  std::vector<float> x = random_values(256, 27), rounded = x;
  x[100] = 257.0f;
  rounded[100] = 256.0f;
  std::vector<double> exact(64), bfloat16(64);
  std::vector<float> int16(64);
  packed_gemm_reference(weight, x.data(), 1, 256, exact.data(), 64);
  packed_gemm_reference(weight, rounded.data(), 1, 256, bfloat16.data(), 64);
  packed_gemm_int16(weight, x.data(), 1, 256, int16.data(), 64);
  double error16 = 0, error_bf16 = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error16 += std::pow(int16[i] - exact[i], 2);
    error_bf16 += std::pow(bfloat16[i] - exact[i], 2);
  }
  // 256 roundings to within 257 / 65534 against one of 1: 256 (257 / 65534)^2 / 3 << 1.
  EXPECT_LT(error16, error_bf16 / 50);
}

TEST(IntegerTest, MissingArithmeticAndWrongArgumentsAreErrors) {
  const std::vector<float> x(16);
  std::vector<float> out(6);
  const QuantizedMatrix fp8 = random_matrix(Scheme::fp8(0), 3, 8, 23);
  const QuantizedMatrix int8 = random_matrix(Scheme::int8(0), 3, 8, 24);
  const QuantizedMatrix int4 = random_matrix(Scheme::int4(0), 3, 8, 24);
  EXPECT_THROW(packed_gemm_int16(fp8, x.data(), 2, 8, out.data(), 3), UnsupportedError);
  EXPECT_THROW(packed_gemm_int8(fp8, x.data(), 2, 8, out.data(), 3), UnsupportedError);
  EXPECT_THROW(packed_gemm_int8(int8, x.data(), 2, 8, out.data(), 3), UnsupportedError);
  using enum Activations;
  for (const Activations wanted : {kFloat32, kInt16, kInt8}) {
    EXPECT_EQ(usable_activations(wanted, int4.scheme()), wanted);
    EXPECT_EQ(usable_activations(wanted, int8.scheme()), wanted == kInt8 ? kInt16 : wanted);
    EXPECT_EQ(usable_activations(wanted, fp8.scheme()), kFloat32);
    EXPECT_NO_THROW(packed_gemm(fp8, x.data(), 2, 8, out.data(), 3, wanted));
  }
  for (const Arithmetic& arithmetic : {k16Bits, k8Bits}) {
    EXPECT_THROW(arithmetic.gemm(int4, x.data(), 2, 7, out.data(), 3), UsageError);
    EXPECT_THROW(arithmetic.gemm(int4, nullptr, 2, 8, out.data(), 3), UsageError);
    EXPECT_NO_THROW(arithmetic.gemm(int4, nullptr, 0, 8, nullptr, 3));
    const QuantizedMatrix no_columns = random_matrix(Scheme::int4(0), 3, 0, 25);
    std::vector<float> ones(6, 1.0f);
    arithmetic.gemm(no_columns, nullptr, 2, 0, ones.data(), 3);
    EXPECT_EQ(ones, std::vector<float>(6, 0.0f));
  }
}

}  // namespace
}  // namespace curvq
