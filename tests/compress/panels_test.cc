#include "compress/panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compress/lanes.h"
#include "kernels/gemm_testing.h"

namespace curvq::internal {
namespace {

std::vector<double> some(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> value(-8, 8);
  std::vector<double> out(count);
  for (double& v : out) v = value(generator);
  return out;
}

// Of small integers, so that sums are exact in any order.
TEST(Panels, ProductsEqualPlainLoops) {
  for (const int64_t m : {1, 3, 4, 16, 17}) {
    for (const int64_t n : {1, 8, 21}) {
      const int64_t k = 150, lda = m + 2, begin = 3;
      const std::vector<double> a = some(k * lda, 1), b = some(k * (n + 1), 2);
      const Panels panels(b.data(), k, n, n + 1);
      const int64_t ldc = panels.count() * Panels::kWidth;
      std::vector<double> c(m * ldc, 1.0);
      add_panel_product(m, a.data() + begin * lda, lda, panels, begin, k, c.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < ldc; ++j) {
          double expected = 1;
          for (int64_t r = begin; r < k && j < n; ++r)
            expected += a[r * lda + i] * b[r * (n + 1) + j];
          ASSERT_EQ(c[i * ldc + j], expected) << m << " " << n << ": " << i << ", " << j;
        }
      }
    }
  }
}

// Numbers whose sums round, on the instruction set of the machine and on this one.
class PanelsTest : public CpuPathTest {};

TEST_P(PanelsTest, EveryInstructionSetGivesTheSameBits) {
  constexpr int64_t kRows = 300, kM = 19, kN = 21;
  std::mt19937 generator(3);
  std::normal_distribution<double> value;
  std::vector<double> a(kRows * kM), b(kRows * kN);
  for (std::vector<double>* v : {&a, &b}) {
    for (double& element : *v) element = value(generator);
  }
  const Panels panels(b.data(), kRows, kN, kN);
  const int64_t ldc = panels.count() * Panels::kWidth;
  std::vector<double> c(kM * ldc, 0.5);
  add_panel_product(kM, a.data(), kM, panels, 0, kRows, c.data());
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      double sum = 0.5;
      for (int64_t begin = 0; begin < kRows; begin += 128) {
        double part = 0;
        for (int64_t k = begin; k < std::min(begin + 128, kRows); ++k)
          part = std::fma(a[k * kM + i], b[k * kN + j], part);
        sum += part;
      }
      ASSERT_EQ(c[i * ldc + j], sum) << i << ", " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, PanelsTest, kAllCpuPaths, cpu_path_name);

TEST(Lanes, AProductIsItsTermsInTurn) {
  std::mt19937 generator(5);
  std::normal_distribution<float> value;
  std::vector<float> x(9 * kStrip), a(9), y(kStrip);
  for (std::vector<float>* v : {&x, &a, &y}) {
    for (float& element : *v) element = value(generator);
  }
  std::vector<float> expected = y;
  for (int64_t k = 0; k < 9; ++k)
    subtract_scaled(expected.data(), a[k], x.data() + k * kStrip, kStrip);
  subtract_product(y.data(), a.data(), 9, x.data());
  EXPECT_EQ(y, expected);
}

}  // namespace
}  // namespace curvq::internal
