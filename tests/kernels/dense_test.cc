#include "curvq/kernels/dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "curvq/core/parallel.h"
#include "curvq/formats/dtype.h"
#include "linear_testing.h"

namespace curvq {
namespace {

TEST(DenseTest, IsTheProductOfTheWidenedValues) {
  for (const int64_t k : {1, 15, 16, 17, 172, 576, 4096}) {
    for (const int64_t n : {1, 7, 300}) {
      const Guarded<float> given(random_values(n * k, 1));
      Guarded<uint16_t> weight(n * k);
      Guarded<float> x(random_values(k, 2)), out(n);
      const std::vector<float> values = given.values();
      for (int64_t i = 0; i < n * k; ++i) weight[i] = f32_to_bf16(values[i]);
      gemv_bf16(weight.data(), n, k, x.data(), out.data());
      for (int64_t r = 0; r < n; ++r) {
        double sum = 0, magnitude = 0;
        for (int64_t c = 0; c < k; ++c) {
          const double product = static_cast<double>(x[c]) * bf16_to_f32(weight[r * k + c]);
          sum += product, magnitude += std::fabs(product);
        }
        const double bound = (static_cast<double>(k) / 16 + 6) * kHalfUlp * magnitude;
        ASSERT_LE(std::fabs(out[r] - sum), bound + static_cast<double>(k) * 0x1p-149)
            << n << " x " << k << ", row " << r;
      }
    }
  }
}

TEST(DenseTest, IndependentOfNumberOfThreads) {
  const int64_t n = 1000, k = 300;
  std::vector<uint16_t> weight;
  for (const float v : random_values(n * k, 3)) weight.push_back(f32_to_bf16(v));
  const std::vector<float> x = random_values(k, 4);
  std::vector<float> one(n), many(n);
  const int threads = num_threads();
  set_num_threads(1);
  gemv_bf16(weight.data(), n, k, x.data(), one.data());
  set_num_threads(5);
  gemv_bf16(weight.data(), n, k, x.data(), many.data());
  set_num_threads(threads);
  EXPECT_EQ(one, many);
}

TEST(DenseTest, WrongArgumentsAreErrors) {
  const uint16_t weight[4] = {};
  float x[2] = {}, out[2] = {7, 7};
  EXPECT_THROW(gemv_bf16(weight, -1, 2, x, out), UsageError);
  EXPECT_THROW(gemv_bf16(nullptr, 2, 2, x, out), UsageError);
  EXPECT_THROW(gemv_bf16(weight, 2, 2, nullptr, out), UsageError);
  EXPECT_THROW(gemv_bf16(weight, 2, 2, x, nullptr), UsageError);
  EXPECT_NO_THROW(gemv_bf16(nullptr, 0, 2, x, nullptr));
  gemv_bf16(nullptr, 2, 0, nullptr, out);
  EXPECT_EQ(out[0], 0);
}

}  // namespace
}  // namespace curvq
