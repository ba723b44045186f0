// What quantize_layer() tells of the steps it took.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "curvq/compress/quantize.h"

namespace curvq {
namespace {

constexpr int64_t kRows = 12, kCols = 64;

std::vector<float> random_values(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// 1/n sum x x^T of n = 3 size samples.
std::vector<float> covariance(int64_t size, uint64_t seed) {
  const int64_t n = 3 * size;
  const std::vector<float> x = random_values(n * size, seed);
  std::vector<float> out(size * size);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < n; ++t) sum += static_cast<double>(x[t * size + i]) * x[t * size + j];
      out[i * size + j] = static_cast<float>(sum / n);
    }
  }
  return out;
}

// tr(G D H D^T), entry by entry.
double trace(const std::vector<float>& d, const std::vector<float>& g,
             const std::vector<float>& h) {
  double sum = 0;
  for (int64_t a = 0; a < kRows; ++a) {
    for (int64_t b = 0; b < kRows; ++b) {
      if (g[a * kRows + b] == 0) continue;
      for (int64_t i = 0; i < kCols; ++i) {
        for (int64_t j = 0; j < kCols; ++j)
          sum += static_cast<double>(g[a * kRows + b]) * d[b * kCols + i] * h[i * kCols + j] *
                 d[a * kCols + j];
      }
    }
  }
  return sum;
}

class Steps : public testing::Test {
 protected:
  Steps() {
    problem.name = "layer";
    problem.weight = weight.data();
    problem.rows = kRows;
    problem.cols = kCols;
    problem.hessian = h.data();
    problem.tensor_amax = max_abs(weight.data(), kRows * kCols);
  }
  double error(const QuantizedMatrix& matrix, const std::vector<float>& by_g,
               const std::vector<float>& by_h) const {
    std::vector<float> d(kRows * kCols);
    dequantize(matrix, d.data());
    for (size_t i = 0; i < d.size(); ++i) d[i] = weight[i] - d[i];
    return trace(d, by_g, by_h) / trace(weight, by_g, by_h);
  }
  QuantizedMatrix rtn() const {
    return quantize_rtn(weight.data(), kRows, kCols, problem.scheme, problem.tensor_amax);
  }

  const std::vector<float> weight = random_values(kRows * kCols, 1), h = covariance(kCols, 2),
                           g = covariance(kRows, 3), other_h = covariance(kCols, 4),
                           other_g = covariance(kRows, 5);
  std::vector<float> identity = [] {
    std::vector<float> out(kRows * kRows, 0.0f);
    for (int64_t i = 0; i < kRows; ++i) out[i * kRows + i] = 1;
    return out;
  }();
  LayerProblem problem;
};

// Products are summed in float32 where rounding errors of a few thousand terms leave five digits.
constexpr double kClose = 1e-5;

TEST_F(Steps, OfRoundToNearestAndGptqAreTheirErrors) {
  QuantizeOptions options;
  LayerResult result;
  const QuantizedMatrix matrix = quantize_layer(problem, options, result);
  ASSERT_EQ(result.steps.size(), 2u);
  EXPECT_EQ(result.steps[0].name, "rtn");
  EXPECT_EQ(result.steps[1].name, "gptq");
  EXPECT_NEAR(result.steps[0].calibration / error(rtn(), identity, h), 1, kClose);
  EXPECT_NEAR(result.steps[1].calibration / error(matrix, identity, h), 1, kClose);
  EXPECT_FALSE(result.steps[0].held_out.has_value());
  EXPECT_FALSE(result.shrinkage.has_value());
  options.method = Method::kRtn;
  LayerResult nearest;
  quantize_layer(problem, options, nearest);
  ASSERT_EQ(nearest.steps.size(), 1u);
  EXPECT_EQ(nearest.steps[0].calibration, result.steps[0].calibration);
}

TEST_F(Steps, OfSweepsNeverRise) {
  problem.output_factor = g.data();
  problem.factor_shrinkage = 0.25;
  QuantizeOptions options;
  options.output_factor = true;
  options.gptq.search_scales = true;
  options.refine.sweeps = 3;
  LayerResult result;
  const QuantizedMatrix matrix = quantize_layer(problem, options, result);
  ASSERT_EQ(result.steps.size(), 5u);
  EXPECT_EQ(result.steps[1].name, "gptq with scale search");
  EXPECT_EQ(result.steps[2].name, "sweep 1");
  EXPECT_NEAR(result.steps[0].calibration / error(rtn(), g, h), 1, kClose);
  EXPECT_NEAR(result.steps[4].calibration / error(matrix, g, h), 1, kClose);
  for (int i = 2; i < 5; ++i)
    EXPECT_LE(result.steps[i].calibration, result.steps[i - 1].calibration * (1 + kClose));
  EXPECT_EQ(result.shrinkage, 0.25);
}

TEST_F(Steps, AreJudgedByHeldOutTokensToo) {
  problem.output_factor = g.data();
  problem.held_out_hessian = other_h.data();
  problem.held_out_factor = other_g.data();
  QuantizeOptions options;
  options.output_factor = true;
  options.held_out = 0.5;
  options.refine.sweeps = 2;
  LayerResult result;
  const QuantizedMatrix matrix = quantize_layer(problem, options, result);
  ASSERT_GE(result.steps.size(), 4u);
  EXPECT_NEAR(*result.steps[0].held_out / error(rtn(), other_g, other_h), 1, kClose);
  EXPECT_NEAR(*result.steps[0].held_out / result.held_out->rtn, 1, kClose);
  EXPECT_NEAR(*result.steps[1].held_out / result.held_out->gptq, 1, kClose);
  // Factors of other tokens tell nothing of these: what is kept is the best of all steps.
  double best = *result.steps[0].held_out;
  for (const RoundingStep& step : result.steps) {
    if (step.held_out) best = std::min(best, *step.held_out);
  }
  EXPECT_LE(best, error(matrix, other_g, other_h) * (1 + kClose));
  EXPECT_NEAR(result.held_out->kept / error(matrix, other_g, other_h), 1, kClose);
}

}  // namespace
}  // namespace curvq
