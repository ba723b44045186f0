// Pruning and rounding in one solve.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <random>

#include "curvq/compress/quantize.h"

namespace curvq {
namespace {

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

RowMatrix random_matrix(int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  RowMatrix m(rows, cols);
  for (int i = 0; i < m.size(); ++i) m.data()[i] = normal(random);
  return m;
}

class PruneQuantize : public testing::TestWithParam<Scheme> {
 protected:
  const RowMatrix w_ = random_matrix(70, 128, 1);
  const RowMatrix x_ = random_matrix(400, 128, 2) * random_matrix(128, 128, 3);
  RowMatrix h_ = 2.0f / 400 * x_.transpose() * x_;

  LayerProblem problem() const {
    LayerProblem problem;
    problem.name = "layer";
    problem.weight = w_.data();
    problem.rows = 70;
    problem.cols = 128;
    problem.hessian = h_.data();
    problem.tensor_amax = max_abs(w_.data(), w_.size());
    problem.scheme = GetParam();
    return problem;
  }

  static QuantizeOptions options(int sweeps, Method method = Method::kGptq) {
    QuantizeOptions options;
    options.method = method;
    options.prune.emplace();
    options.prune->pattern = SparsityPattern::parse("2:4");
    options.prune->sweeps = options.refine.sweeps = sweeps;
    options.gptq.search_scales = sweeps > 0;
    return options;
  }

  void expect_zeros(const QuantizedMatrix& matrix, const std::vector<uint8_t>& mask) const {
    std::vector<float> values(70 * 128);
    dequantize(matrix, values.data());
    ASSERT_EQ(mask.size(), values.size());
    EXPECT_EQ(std::count(mask.begin(), mask.end(), 1), 70 * 64);
    int64_t wrong = 0;
    for (size_t i = 0; i < mask.size(); ++i) wrong += !mask[i] && values[i] != 0;
    EXPECT_EQ(wrong, 0);
  }
};

TEST_P(PruneQuantize, WhatGoesIsZeroAndRoundingMakesUpForBoth) {
  double last = 1;
  for (const int sweeps : {0, 2}) {
    LayerResult result;
    std::vector<uint8_t> mask;
    expect_zeros(quantize_layer(problem(), options(sweeps), result, &mask), mask);
    EXPECT_EQ(result.sparsity, 0.5);
    // Rounding to nearest, behind the same mask and fit, makes up for nothing.
    EXPECT_LT(result.relative_error, result.rtn_relative_error);
    EXPECT_GT(result.pruned_relative_error, 0);
    EXPECT_LT(result.relative_error, last);
    last = result.relative_error;
  }
}

TEST_P(PruneQuantize, RoundToNearestAndDeadLayersKeepTheZeros) {
  LayerResult result;
  std::vector<uint8_t> mask;
  expect_zeros(quantize_layer(problem(), options(1, Method::kRtn), result, &mask), mask);
  h_.setZero();
  expect_zeros(quantize_layer(problem(), options(1), result, &mask), mask);
  EXPECT_FALSE(result.note.empty());
}

INSTANTIATE_TEST_SUITE_P(Schemes, PruneQuantize,
                         testing::Values(Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                                         Scheme::int4(32, false), Scheme::int8(), Scheme::fp8()),
                         [](const auto& info) {
                           return info.param.name() + std::to_string(info.index);
                         });

}  // namespace
}  // namespace curvq
