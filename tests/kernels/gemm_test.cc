#include "curvq/kernels/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "gemm_testing.h"

namespace curvq {
namespace {

// (k + 2) 2^-24 sum |x w|, and half the smallest float32 for each operation that can underflow.
double error_bound(const QuantizedMatrix& weight, const float* x, int64_t row) {
  std::vector<float> w(weight.cols());
  dequantize_row(weight, row, 0, weight.cols(), w.data());
  double magnitude = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    magnitude += std::fabs(static_cast<double>(w[i]) * static_cast<double>(x[i]));
  }
  const double k = static_cast<double>(weight.cols());
  return (k + 2) * kHalfUlp * magnitude + k * 0x1p-149;
}

// Compares packed_gemm with the reference on x [m, ldx] for every element.
void expect_within_bound(const QuantizedMatrix& weight, int64_t m, unsigned seed) {
  const int64_t n = weight.rows(), k = weight.cols(), ldx = k + 3, ldout = n + 2;
  const std::vector<float> x = random_values(m * ldx, seed);
  const float untouched = 12345.0f;
  std::vector<float> out(m * ldout, untouched);
  std::vector<double> expected(m * n);
  packed_gemm(weight, x.data(), m, ldx, out.data(), ldout);
  packed_gemm_reference(weight, x.data(), m, ldx, expected.data(), n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_LE(std::fabs(static_cast<double>(out[i * ldout + j]) - expected[i * n + j]),
                error_bound(weight, x.data() + i * ldx, j))
          << "row " << i << ", column " << j;
    }
    for (int64_t j = n; j < ldout; ++j) EXPECT_EQ(out[i * ldout + j], untouched);
  }
}

std::vector<Scheme> schemes_of_any_width() {
  return {Scheme::int4(0), Scheme::int4(0, false), Scheme::int8(0), Scheme::int8(0, false),
          Scheme::fp8(0)};
}

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> schemes = schemes_of_any_width();
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                               Scheme::int4(64, false), Scheme::int8(32), Scheme::fp8(64)}) {
    schemes.push_back(scheme);
  }
  return schemes;
}

class PackedGemmPathTest : public CpuPathTest {};

TEST_P(PackedGemmPathTest, MatchesReferenceForAllSchemes) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    expect_within_bound(random_matrix(scheme, 21, 192, 1), 5, 2);
  }
}

TEST_P(PackedGemmPathTest, MatchesReferenceForOddWidths) {
  for (const Scheme& scheme : schemes_of_any_width()) {
    for (const int64_t k : {1, 2, 7, 15, 17, 31, 172}) {
      SCOPED_TRACE(scheme.describe() + ", k = " + std::to_string(k));
      expect_within_bound(random_matrix(scheme, 9, k, 3), 7, 4);
    }
  }
}

TEST_P(PackedGemmPathTest, MatchesReferenceForAllNumbersOfRows) {
  for (int64_t m = 1; m <= 13; ++m) {
    for (const int64_t n : {1, 2, 3, 4, 5, 16, 37}) {
      SCOPED_TRACE("m = " + std::to_string(m) + ", n = " + std::to_string(n));
      expect_within_bound(random_matrix(Scheme::nvfp4(), n, 48, 5), m, 6);
    }
  }
}

// Blocks of weight rows get fewer when a row is long.
TEST_P(PackedGemmPathTest, MatchesReferenceForLongRows) {
  expect_within_bound(random_matrix(Scheme::mxfp4(), 19, 20000 / 32 * 32, 7), 4, 8);
}

TEST_P(PackedGemmPathTest, ExactWhereProductsAndSumsAreExact) {
  // Codes are small integers with scale 1 and x is a small integer: every partial sum is an
  // integer below 2^24.
  ScaleGrid grid;
  grid.scheme = Scheme::int8(0);
  grid.rows = 10;
  grid.cols = 172;
  grid.groups = 1;
  grid.scales.assign(10, 1.0f);
  QuantizedMatrix weight(grid);
  std::mt19937 generator(9);
  for (uint8_t& code : weight.codes) code = static_cast<uint8_t>(generator() % 256);
  std::vector<float> x(6 * 172);
  for (float& v : x) v = static_cast<float>(static_cast<int>(generator() % 41) - 20);
  std::vector<float> out(6 * 10);
  packed_gemm(weight, x.data(), 6, 172, out.data(), 10);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 10; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < 172; ++k) {
        sum += (weight.code(j, k) - 128) * static_cast<int64_t>(x[i * 172 + k]);
      }
      EXPECT_EQ(out[i * 10 + j], static_cast<float>(sum));
    }
  }
}

TEST_P(PackedGemmPathTest, EachRowIsIndependentOfTheOthers) {
  const QuantizedMatrix weight = random_matrix(Scheme::int4(0), 23, 172, 10);
  const std::vector<float> x = random_values(9 * 172, 11);
  std::vector<float> together(9 * 23), alone(23);
  packed_gemm(weight, x.data(), 9, 172, together.data(), 23);
  for (int64_t i = 0; i < 9; ++i) {
    packed_gemm(weight, x.data() + i * 172, 1, 172, alone.data(), 23);
    EXPECT_EQ(alone, std::vector<float>(together.begin() + i * 23, together.begin() + i * 23 + 23));
  }
}

TEST_P(PackedGemmPathTest, IndependentOfNumberOfThreads) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 131, 320, 12);
  const std::vector<float> x = random_values(8 * 320, 13);
  const int threads = num_threads();
  std::vector<float> first(8 * 131);
  set_num_threads(1);
  packed_gemm(weight, x.data(), 8, 320, first.data(), 131);
  for (const int count : {2, 3, 7}) {
    std::vector<float> out(8 * 131);
    set_num_threads(count);
    packed_gemm(weight, x.data(), 8, 320, out.data(), 131);
    EXPECT_EQ(out, first) << count << " threads";
  }
  set_num_threads(threads);
}

TEST_P(PackedGemmPathTest, NanAndInfinityPropagate) {
  const QuantizedMatrix weight = random_matrix(Scheme::int8(0), 6, 172, 14);
  for (const int64_t position : {0, 100, 171}) {  // first, vector body, tail
    std::vector<float> x = random_values(2 * 172, 15), out(2 * 6);
    x[position] = std::numeric_limits<float>::quiet_NaN();
    x[172 + position] = std::numeric_limits<float>::infinity();
    packed_gemm(weight, x.data(), 2, 172, out.data(), 6);
    for (int64_t j = 0; j < 6; ++j) {
      EXPECT_TRUE(std::isnan(out[j]));
      const int value = weight.code(j, position) - 128;
      if (value == 0) {
        EXPECT_TRUE(std::isnan(out[6 + j]));
      } else {
        EXPECT_EQ(out[6 + j], value > 0 ? HUGE_VALF : -HUGE_VALF);
      }
    }
  }
}

// The other rows must not see what lies behind a row's end.
TEST_P(PackedGemmPathTest, ReadsNothingBehindARow) {
  const QuantizedMatrix weight = random_matrix(Scheme::int8(0), 5, 13, 16);
  std::vector<float> x(3 * 16, std::numeric_limits<float>::quiet_NaN()), out(3 * 5);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 13; ++k) x[i * 16 + k] = 1.0f;
  }
  packed_gemm(weight, x.data(), 3, 16, out.data(), 5);
  for (const float v : out) EXPECT_TRUE(std::isfinite(v));
}

INSTANTIATE_TEST_SUITE_P(Paths, PackedGemmPathTest, kAllCpuPaths, cpu_path_name);

TEST(PackedGemmTest, PathIsTheBestThatTheMachineHas) {
  unsetenv("CURVQ_CPU");
  const std::string path = packed_gemm_path();
  for (const char* best :
       {"amx", "avx512_vbmi", "avx512_vnni", "avx512", "avx_vnni", "avx2", "scalar"}) {
    if (!machine_has(best)) continue;
    EXPECT_EQ(path, best);
    break;
  }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PackedGemmTest, UnknownPathIsAnError) {
  const ForcedPath forced("sse9");
  const QuantizedMatrix weight = random_matrix(Scheme::int8(0), 1, 4, 17);
  const std::vector<float> x(4);
  float out;
  EXPECT_THAT(message_of([&] { packed_gemm(weight, x.data(), 1, 4, &out, 1); }),
              ::testing::AllOf(::testing::HasSubstr("CURVQ_CPU=sse9"),
                               ::testing::HasSubstr("possible: scalar")));
  EXPECT_THAT(message_of([] { packed_gemm_path(); }), ::testing::HasSubstr("CURVQ_CPU=sse9"));
}

TEST(PackedGemmTest, WrongArgumentsAreErrors) {
  const QuantizedMatrix weight = random_matrix(Scheme::int8(0), 3, 8, 18);
  const std::vector<float> x(16);
  std::vector<float> out(6);
  std::vector<double> exact(6);
  const auto call = [&](const float* in, int64_t m, int64_t ldx, float* target, int64_t ldout) {
    return message_of([=, &weight] { packed_gemm(weight, in, m, ldx, target, ldout); });
  };
  EXPECT_THAT(call(x.data(), -1, 8, out.data(), 3), ::testing::HasSubstr("m is -1"));
  EXPECT_THAT(call(x.data(), 2, 7, out.data(), 3), ::testing::HasSubstr("ldx 7"));
  EXPECT_THAT(call(x.data(), 2, 8, out.data(), 2), ::testing::HasSubstr("ldout 2"));
  EXPECT_THAT(call(nullptr, 2, 8, out.data(), 3), ::testing::HasSubstr("x is a null pointer"));
  EXPECT_THAT(call(x.data(), 2, 8, nullptr, 3), ::testing::HasSubstr("out is a null pointer"));
  EXPECT_THAT(message_of([&] { packed_gemm_reference(weight, x.data(), 2, 7, exact.data(), 3); }),
              ::testing::HasSubstr("ldx 7"));
}

TEST(PackedGemmTest, EmptyProductsWriteNothing) {
  const QuantizedMatrix weight = random_matrix(Scheme::int8(0), 3, 8, 19);
  EXPECT_NO_THROW(packed_gemm(weight, nullptr, 0, 8, nullptr, 3));
  const QuantizedMatrix no_rows = random_matrix(Scheme::int8(0), 0, 8, 20);
  const std::vector<float> x(8);
  EXPECT_NO_THROW(packed_gemm(no_rows, x.data(), 1, 8, nullptr, 0));
}

TEST(PackedGemmTest, NoColumnsGiveZeros) {
  const QuantizedMatrix weight = random_matrix(Scheme::int8(0), 3, 0, 21);
  std::vector<float> out(6, 1.0f);
  packed_gemm(weight, nullptr, 2, 0, out.data(), 3);
  EXPECT_EQ(out, std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace curvq
