// What quantize_layer() makes of held-out factors.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "curvq/compress/quantize.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

constexpr int64_t kRows = 24, kCols = 64;

std::vector<float> gram(int64_t n, double common, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(3 * n * n), out(n * n, 0.0f);
  for (int64_t t = 0; t < 3 * n; ++t) {
    const double shared = common * normal(generator);
    for (int64_t j = 0; j < n; ++j) x[t * n + j] = static_cast<float>(normal(generator) + shared);
  }
  accumulate_gram(x.data(), 3 * n, n, n, 1.0f / static_cast<float>(3 * n), out.data());
  mirror_lower(out.data(), n);
  return out;
}

std::vector<float> identity(int64_t n) {
  std::vector<float> out(n * n, 0.0f);
  for (int64_t i = 0; i < n; ++i) out[i * n + i] = 1;
  return out;
}

class HeldOut : public ::testing::Test {
 protected:
  HeldOut() : weight_(kRows * kCols), hessian_(gram(kCols, 2, 2)), factor_(gram(kRows, 2, 3)) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (float& w : weight_) w = normal(generator);
    options_.refine.sweeps = 2;
    problem_.name = "layer";
    problem_.weight = weight_.data();
    problem_.rows = kRows;
    problem_.cols = kCols;
    problem_.scheme = Scheme::mxfp4();
    problem_.hessian = hessian_.data();
    problem_.output_factor = factor_.data();
  }

  QuantizedMatrix run(const std::vector<float>& held_out_hessian,
                      const std::vector<float>& held_out_factor) {
    problem_.held_out_hessian = held_out_hessian.data();
    problem_.held_out_factor = held_out_factor.data();
    result_ = {};
    const QuantizedMatrix matrix = quantize_layer(problem_, options_, result_);
    std::vector<float> d(kRows * kCols);
    dequantize(matrix, d.data());
    for (size_t i = 0; i < d.size(); ++i) d[i] = weight_[i] - d[i];
    const auto trace = [&](const float* x) {
      return kronecker_trace(x, kRows, held_out_factor.data(), held_out_hessian.data(), kCols);
    };
    EXPECT_NEAR(result_.held_out->kept / (trace(d.data()) / trace(weight_.data())), 1, 1e-6);
    EXPECT_LE(result_.held_out->kept, result_.held_out->gptq);
    EXPECT_LE(result_.held_out->kept, result_.held_out->rtn);
    return matrix;
  }

  std::vector<float> weight_, hessian_, factor_;
  LayerProblem problem_;
  QuantizeOptions options_;
  LayerResult result_;
};

TEST_F(HeldOut, SweepsThatHelpAreKept) {
  const QuantizedMatrix judged = run(hessian_, factor_);
  EXPECT_EQ(result_.note, "");
  EXPECT_LT(result_.held_out->kept, result_.held_out->gptq);
  problem_.held_out_hessian = problem_.held_out_factor = nullptr;
  EXPECT_EQ(judged.codes, quantize_layer(problem_, options_, result_).codes);
}

// One direction in place of all: what an undersampled factor looks like.
TEST_F(HeldOut, MisleadingOutputFactorIsGivenUp) {
  std::mt19937 generator(4);
  std::normal_distribution<float> normal;
  std::vector<float> direction(kRows);
  for (float& v : direction) v = normal(generator);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t k = 0; k < kRows; ++k)
      factor_[i * kRows + k] = direction[i] * direction[k] + (i == k ? 1e-4f : 0.0f);
  }
  run(hessian_, identity(kRows));
  EXPECT_NE(result_.note.find("output factor"), std::string::npos) << result_.note;
  EXPECT_LT(result_.held_out->kept, result_.held_out->gptq);
}

TEST_F(HeldOut, RoundToNearestWinsWhereInputsAreNothingLikeTheCalibration) {
  const QuantizedMatrix matrix = run(identity(kCols), identity(kRows));
  EXPECT_EQ(result_.note.rfind("rounded to nearest", 0), 0u) << result_.note;
  const QuantizedMatrix rtn =
      quantize_rtn(weight_.data(), kRows, kCols, Scheme::mxfp4(), problem_.tensor_amax);
  EXPECT_EQ(matrix.codes, rtn.codes);
}

}  // namespace
}  // namespace curvq
