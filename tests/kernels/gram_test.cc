#include "curvq/kernels/gram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "curvq/core/parallel.h"
#include "gemm_testing.h"

namespace curvq {
namespace {

constexpr float kUntouched = -7.0f;

// Lower triangle of alpha X^T X in float64, and for each entry the largest error: one step / 2 of
// each factor where it meets the other, their product, and float32 sums of n / 64 exact numbers.
struct Expected {
  std::vector<double> gram, bound;

  Expected(const std::vector<float>& x, int64_t n, int64_t k, int64_t ldx, double alpha)
      : gram(k * k), bound(k * k) {
    std::vector<double> step(n * k);  // half of one, of each element's column and 256 rows
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t begin = t / 256 * 256, end = std::min(n, begin + 256);
        double amax = 0;
        for (int64_t s = begin; s < end; ++s)
          amax = std::max<double>(amax, std::fabs(x[s * ldx + j]));
        step[t * k + j] = 1.0001 * amax / 8190;
      }
    }
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t t = 0; t < n; ++t) {
          const double a = x[t * ldx + i], b = x[t * ldx + j];
          const double da = step[t * k + i], db = step[t * k + j];
          gram[i * k + j] += alpha * a * b;
          bound[i * k + j] += alpha * (std::fabs(a) * db + std::fabs(b) * da + da * db +
                                       (static_cast<double>(n) / 64 + 8) * kHalfUlp *
                                           (std::fabs(a) + da) * (std::fabs(b) + db));
        }
      }
    }
  }
};

void expect_within_bound(const std::vector<float>& x, int64_t n, int64_t k, int64_t ldx) {
  const float alpha = 0.37f;
  const Expected expected(x, n, k, ldx, alpha);
  std::vector<float> gram(k * k, 0.0f);
  for (int64_t i = 0; i < k; ++i) std::fill_n(gram.data() + i * k + i + 1, k - i - 1, kUntouched);
  accumulate_gram_int16(x.data(), n, k, ldx, alpha, gram.data());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      EXPECT_LE(std::fabs(gram[i * k + j] - expected.gram[i * k + j]), expected.bound[i * k + j])
          << i << ", " << j;
    }
  }
}

class GramPathTest : public CpuPathTest {};

TEST_P(GramPathTest, WithinBoundForAllShapes) {
  for (const int64_t n : {1, 2, 63, 256, 257, 600}) {
    for (const int64_t k : {1, 15, 16, 17, 50, 210}) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(k));
      const int64_t ldx = k + 5;
      std::vector<float> x = random_values(n * ldx, static_cast<unsigned>(n + k));
      x[(n / 2) * ldx + k / 2] *= 1000;
      expect_within_bound(x, n, k, ldx);
    }
  }
}

TEST_P(GramPathTest, DiagonalIsAsGoodAsFloat32) {
  const int64_t n = 2048, k = 32;
  const std::vector<float> x = random_values(n * k, 1);
  std::vector<float> gram(k * k, 0.0f);
  accumulate_gram_int16(x.data(), n, k, k, 1.0f, gram.data());
  for (int64_t i = 0; i < k; ++i) {
    double exact = 0;
    for (int64_t t = 0; t < n; ++t) exact += static_cast<double>(x[t * k + i]) * x[t * k + i];
    // sum of n products x e, e uniform in half a step of about 4 / 4095: three deviations
    const double deviation = 2 * std::sqrt(n / 12.0) * 4.5 / 4095;
    EXPECT_NEAR(gram[i * k + i], exact, 4 * deviation);
    EXPECT_LT(4 * deviation / exact, 6e-5);
  }
}

TEST_P(GramPathTest, LargestSumsDoNotOverflow) {
  const int64_t n = 512, k = 20;
  const std::vector<float> x(n * k, -3.5f);
  std::vector<float> gram(k * k, 0.0f);
  accumulate_gram_int16(x.data(), n, k, k, 2.0f, gram.data());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j <= i; ++j) EXPECT_NEAR(gram[i * k + j], 2 * 512 * 3.5 * 3.5, 0.02);
  }
}

TEST_P(GramPathTest, AddsToWhatIsThereForAnyNumberOfThreads) {
  const int64_t n = 300, k = 70;
  const std::vector<float> x = random_values(n * k, 2);
  const int threads = num_threads();
  std::vector<float> first(k * k, 0.0f);
  set_num_threads(1);
  accumulate_gram_int16(x.data(), n, k, k, 1.0f, first.data());
  for (const int count : {2, 5}) {
    set_num_threads(count);
    std::vector<float> gram(k * k, 0.0f);
    accumulate_gram_int16(x.data(), n, k, k, 1.0f, gram.data());
    EXPECT_EQ(gram, first);
    accumulate_gram_int16(x.data(), n, k, k, 1.0f, gram.data());
    for (int64_t i = 0; i < k; ++i) EXPECT_FLOAT_EQ(gram[i * k], 2 * first[i * k]);
  }
  set_num_threads(threads);
}

TEST_P(GramPathTest, ColumnsThatAreNotFiniteGiveNanAndOthersDoNot) {
  const int64_t n = 20, k = 18;
  for (const float bad : {HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = random_values(n * k, 3), gram(k * k, 0.0f);
    x[7 * k + 3] = bad;
    accumulate_gram_int16(x.data(), n, k, k, 1.0f, gram.data());
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j <= i; ++j) EXPECT_EQ(std::isnan(gram[i * k + j]), i == 3 || j == 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, GramPathTest, kAllCpuPaths, cpu_path_name);

TEST(GramTest, WrongArgumentsAreErrors) {
  std::vector<float> x(8), gram(16, 1.0f);
  EXPECT_THROW(accumulate_gram_int16(x.data(), -1, 4, 4, 1, gram.data()), UsageError);
  EXPECT_THROW(accumulate_gram_int16(x.data(), 2, 4, 3, 1, gram.data()), UsageError);
  EXPECT_THROW(accumulate_gram_int16(nullptr, 2, 4, 4, 1, gram.data()), UsageError);
  EXPECT_THROW(accumulate_gram_int16(x.data(), 2, 4, 4, 1, nullptr), UsageError);
  accumulate_gram_int16(nullptr, 0, 4, 4, 1, gram.data());
  EXPECT_EQ(gram, std::vector<float>(16, 1.0f));
}

}  // namespace
}  // namespace curvq
