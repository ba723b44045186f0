#include "curvq/compress/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <random>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"

namespace curvq {
namespace {

using testing::HasSubstr;
using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

RowMatrix random_matrix(int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  RowMatrix m(rows, cols);
  for (int i = 0; i < m.size(); ++i) m.data()[i] = normal(random);
  return m;
}

// Correlated inputs: 2/N X^T X with X = Z M.
RowMatrix random_hessian(int k, int n, unsigned seed) {
  const RowMatrix x = random_matrix(n, k, seed) * random_matrix(k, k, seed + 1);
  return 2.0f / n * x.transpose() * x;
}

ScaleGrid grid_of(const RowMatrix& w, const Scheme& scheme) {
  return make_scale_grid(w.data(), w.rows(), w.cols(), scheme, max_abs(w.data(), w.size()));
}

double error_of(const RowMatrix& w, const QuantizedMatrix& q, const RowMatrix& h) {
  RowMatrix rounded(w.rows(), w.cols());
  dequantize(q, rounded.data());
  const Eigen::MatrixXd d = (w - rounded).cast<double>();
  return (d * h.cast<double>()).cwiseProduct(d).sum();
}

// The paper's algorithm in float64, without blocks: inverse, then one rank-1 elimination a column.
QuantizedMatrix textbook(const RowMatrix& w, const RowMatrix& h, const Scheme& scheme,
                         double damping) {
  const int k = static_cast<int>(w.cols());
  Eigen::MatrixXd inverse = (h.cast<double>() + damping * h.cast<double>().diagonal().mean() *
                                                    Eigen::MatrixXd::Identity(k, k))
                                .inverse();
  Eigen::MatrixXd left = w.cast<double>();
  std::vector<int> order(k);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return h(a, a) > h(b, b); });
  QuantizedMatrix q(grid_of(w, scheme));
  for (const int j : order) {
    const double pivot = inverse(j, j);
    for (int r = 0; r < w.rows(); ++r) {
      const float scale = q.grid.scale(r, scheme.group_of(j));
      const int zero = q.grid.zero_point(r, scheme.group_of(j));
      const uint8_t code = encode(scheme, static_cast<float>(left(r, j)), scale, zero);
      q.set_code(r, j, code);
      const double error = (left(r, j) - decode(scheme, code, scale, zero)) / pivot;
      left.row(r) -= error * inverse.row(j);
    }
    inverse -= inverse.col(j) * inverse.row(j) / pivot;
  }
  return q;
}

TEST(Gptq, EqualsTheTextbookAlgorithmInFloat64) {
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                               Scheme::int4(32, false), Scheme::int8(32)}) {
    const RowMatrix w = random_matrix(70, 96, 1), h = random_hessian(96, 500, 2);
    const GptqResult ours = gptq(w.data(), h.data(), grid_of(w, scheme), GptqOptions{}, "layer");
    const QuantizedMatrix reference = textbook(w, h, scheme, 0.01);
    int different = 0;
    for (int r = 0; r < 70; ++r) {
      for (int c = 0; c < 96; ++c) different += ours.matrix.code(r, c) != reference.code(r, c);
    }
    // A weight that lies within float32's error of a rounding boundary may fall on the other side
    // and take the rest of its row along: at most one row in ten.
    EXPECT_LE(different, 7 * 96 / 2) << scheme.describe();
    const double ratio = error_of(w, ours.matrix, h) / error_of(w, reference, h);
    EXPECT_NEAR(ratio, 1.0, 0.02) << scheme.describe();
  }
}

TEST(Gptq, BeatsRoundToNearestOnCorrelatedInputs) {
  const RowMatrix w = random_matrix(64, 128, 3), h = random_hessian(128, 400, 4);
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(64)}) {
    const GptqResult ours = gptq(w.data(), h.data(), grid_of(w, scheme), GptqOptions{}, "layer");
    EXPECT_LT(error_of(w, ours.matrix, h),
              0.7 * error_of(w, quantize_rtn(w.data(), grid_of(w, scheme)), h));
  }
}

TEST(Gptq, DoesNotDependOnThreadsOrLazyBlocks) {
  const RowMatrix w = random_matrix(200, 96, 5), h = random_hessian(96, 300, 6);
  const auto run = [&](int threads, int64_t block) {
    set_num_threads(threads);
    GptqOptions options;
    options.block_size = block;
    return gptq(w.data(), h.data(), grid_of(w, Scheme::nvfp4()), options, "layer").matrix;
  };
  const QuantizedMatrix one = run(1, 128);
  EXPECT_EQ(one.codes, run(2, 128).codes);
  // Another block size sums in another order: the same error, not the same bits.
  EXPECT_NEAR(error_of(w, run(2, 16), h) / error_of(w, one, h), 1.0, 0.02);
}

TEST(Gptq, DiagonalHessianGivesRoundToNearest) {
  const RowMatrix w = random_matrix(10, 64, 7);
  const RowMatrix h = RowMatrix::Identity(64, 64) * 3;
  const ScaleGrid grid = grid_of(w, Scheme::int4(32));
  EXPECT_EQ(gptq(w.data(), h.data(), grid, GptqOptions{}, "layer").matrix.codes,
            quantize_rtn(w.data(), grid).codes);
}

TEST(Gptq, DeadInputsKeepTheirRoundedWeightsAndStayOutOfTheDamping) {
  const RowMatrix w = random_matrix(10, 64, 8);
  RowMatrix h = random_hessian(64, 300, 9) * 1e-6f;
  for (const int dead : {0, 5, 63}) {
    h.row(dead).setZero();
    h.col(dead).setZero();
  }
  const ScaleGrid grid = grid_of(w, Scheme::int4(32));
  const GptqResult result = gptq(w.data(), h.data(), grid, GptqOptions{}, "layer");
  const QuantizedMatrix rtn = quantize_rtn(w.data(), grid);
  EXPECT_EQ(result.dead_inputs, 3);
  for (int r = 0; r < 10; ++r) {
    for (const int dead : {0, 5, 63}) EXPECT_EQ(result.matrix.code(r, dead), rtn.code(r, dead));
  }
  // Damping taken from a mean with dead entries set to one would drown H and give RTN's error.
  EXPECT_LT(error_of(w, result.matrix, h), 0.7 * error_of(w, rtn, h));
}

TEST(Gptq, AllZeroHessianGivesRoundToNearest) {
  const RowMatrix w = random_matrix(4, 32, 10), h = RowMatrix::Zero(32, 32);
  const ScaleGrid grid = grid_of(w, Scheme::nvfp4());
  const GptqResult result = gptq(w.data(), h.data(), grid, GptqOptions{}, "layer");
  EXPECT_TRUE(result.all_dead);
  EXPECT_EQ(result.matrix.codes, quantize_rtn(w.data(), grid).codes);
}

TEST(Gptq, RankDeficientHessianWithoutDampingRaisesIt) {
  const RowMatrix w = random_matrix(8, 64, 11), x = random_matrix(16, 64, 12);
  const RowMatrix h = 2.0f / 16 * x.transpose() * x;
  GptqOptions options;
  options.damping = 0;
  const GptqResult result =
      gptq(w.data(), h.data(), grid_of(w, Scheme::int4(32)), options, "layer");
  EXPECT_GT(result.damping, 0);
  EXPECT_LT(result.damping, 1);
  RowMatrix rounded(8, 64);
  dequantize(result.matrix, rounded.data());
  EXPECT_TRUE(rounded.allFinite());
}

TEST(Gptq, TellsNotFiniteFromIndefinite) {
  const RowMatrix w = random_matrix(4, 32, 13);
  RowMatrix h = random_hessian(32, 100, 14);
  h(3, 7) = std::numeric_limits<float>::infinity();
  h(7, 3) = std::numeric_limits<float>::quiet_NaN();
  const auto message = [&] {
    try {
      gptq(w.data(), h.data(), grid_of(w, Scheme::int4(32)), GptqOptions{},
           "model.layers.3.mlp.up_proj");
    } catch (const NumericalError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(
      message(),
      HasSubstr(
          "model.layers.3.mlp.up_proj: the hessian is not finite in 2 of 1024 entries, the first "
          "at row 3, column 7"));
  h = -RowMatrix::Identity(32, 32);
  EXPECT_THAT(message(), HasSubstr("finite but not positive definite"));
}

TEST(GptqOptions, RejectsValuesOutOfRange) {
  GptqOptions options;
  options.damping = -1;
  EXPECT_THROW(options.validate(), UsageError);
  options = GptqOptions{};
  options.damping = std::nan("");
  EXPECT_THROW(options.validate(), UsageError);
  options = GptqOptions{};
  options.block_size = 0;
  EXPECT_THROW(options.validate(), UsageError);
}

}  // namespace
}  // namespace curvq
