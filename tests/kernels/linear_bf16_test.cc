#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "curvq/formats/dtype.h"
#include "curvq/kernels/linear.h"
#include "linear_testing.h"

namespace curvq {
namespace {

class LinearBf16Test : public CpuPathTest {};

// Values rounded to bfloat16 with double precision between; a matrix unit also rounds weights other
// than those of NVFP4 and MXFP4, applies NVFP4's divisor (two roundings more) to the sums, and
// takes what float32 has no normal numbers for as 0.
void expect_bf16(const QuantizedMatrix& weight, int64_t m, unsigned seed) {
  const int64_t n = weight.rows(), k = weight.cols();
  Guarded<float> x(random_values(m * k, seed));
  std::vector<double> w(n * k);
  std::vector<float> dequantized(n * k);
  dequantize(weight, dequantized.data());
  const bool rounds_weights = linear_path() == std::string("amx") && m >= kMatrixLeastRows &&
                              weight.scheme().element != ElementType::kE2M1;
  const auto to_bf16 = [](float v) { return static_cast<double>(bf16_to_f32(f32_to_bf16(v))); };
  for (int64_t i = 0; i < n * k; ++i)
    w[i] = rounds_weights ? to_bf16(dequantized[i]) : static_cast<double>(dequantized[i]);
  const std::vector<float> out = run_linear(weight, x.data(), m, InputRounding::kBF16);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double product = to_bf16(x[i * k + c]) * w[j * k + c];
        sum += product, magnitude += std::fabs(product);
      }
      const double bound = (static_cast<double>(k) + 4) * kHalfUlp * magnitude;
      ASSERT_LE(std::fabs(static_cast<double>(out[i * n + j]) - sum),
                bound + static_cast<double>(k) * 0x1p-125)
          << "row " << i << ", column " << j;
    }
  }
}

TEST_P(LinearBf16Test, AllSchemesAndShapes) {
  for (const int64_t k : {32, 96, 160, 576, 1536}) {
    for (const Scheme& scheme : all_schemes_of(k)) {
      SCOPED_TRACE(scheme.describe() + ", k = " + std::to_string(k));
      expect_bf16(random_matrix(scheme, 21, k, 53), 7, 54);
      expect_bf16(random_matrix(scheme, 85, k, 55), 1, 56);
      expect_bf16(random_matrix(scheme, 85, k, 57), 17, 58);
    }
  }
  for (const int64_t k : {1, 7, 16, 17, 33, 172, 300}) {
    SCOPED_TRACE("row scales, k = " + std::to_string(k));
    for (const Scheme& scheme : {Scheme::int4(0, false), Scheme::int8(0), Scheme::fp8(0)})
      expect_bf16(random_matrix(scheme, 19, k, 57), 3, 58);
  }
  expect_bf16(random_matrix(Scheme::int4(20), 33, 1100, 59), 35, 60);  // groups of three lines
  for (int64_t m = 1; m <= 65; ++m) {
    SCOPED_TRACE("m = " + std::to_string(m));
    expect_bf16(random_matrix(Scheme::nvfp4(), 37, 80, 61), m, 62);
  }
  expect_bf16(random_matrix(Scheme::mxfp4(), 70, 96, 63), 500, 64);  // more than a block
}

INSTANTIATE_TEST_SUITE_P(Paths, LinearBf16Test, kAllCpuPaths, cpu_path_name);

}  // namespace
}  // namespace curvq
