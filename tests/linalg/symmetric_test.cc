#include "curvq/linalg/symmetric.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <random>

#include "curvq/linalg/dense.h"

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

TEST(AccumulateGram, EqualsFloat64ProductOnOddSizesAndStrides) {
  for (const int k : {1, 3, 127, 128, 129, 300}) {
    const int n = 50, stride = k + 5;
    const RowMatrix x = random_matrix(n, stride, k);
    RowMatrix gram = RowMatrix::Constant(k, k, 0.5f);
    accumulate_gram(x.data(), n, k, stride, 2.0f / n, gram.data());
    const Eigen::MatrixXd xd = x.leftCols(k).cast<double>();
    const Eigen::MatrixXd expected = (2.0 / n) * xd.transpose() * xd;
    const Eigen::MatrixXd absolute = (2.0 / n) * xd.cwiseAbs().transpose() * xd.cwiseAbs();
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j <= i; ++j) {
        const double bound = (n + 3) * 0x1p-24 * (absolute(i, j) + 0.5);
        ASSERT_NEAR(gram(i, j), 0.5 + expected(i, j), bound) << k << " " << i << " " << j;
      }
    }
  }
}

TEST(MirrorLower, CopiesEveryEntry) {
  for (const int n : {1, 63, 64, 65, 130}) {
    RowMatrix m = random_matrix(n, n, n);
    const RowMatrix before = m;
    mirror_lower(m.data(), n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) ASSERT_EQ(m(i, j), before(std::max(i, j), std::min(i, j)));
    }
  }
}

TEST(InverseCholesky, FactorTimesItselfIsTheInverse) {
  for (const int n : {1, 5, 128, 200}) {
    const RowMatrix x = random_matrix(2 * n, n, n);
    const RowMatrix h = x.transpose() * x / (2 * n);
    const double damping = 0.05;
    const InverseCholesky result = inverse_cholesky(h.data(), n, damping);
    ASSERT_EQ(result.failed_column, -1);
    EXPECT_FALSE(result.used_double);
    const Eigen::MatrixXd u = Eigen::Map<const RowMatrix>(result.upper.data(), n, n).cast<double>();
    EXPECT_TRUE(u.isUpperTriangular(0));
    const Eigen::MatrixXd damped = h.cast<double>() + damping * Eigen::MatrixXd::Identity(n, n);
    // ||U^T U H - I|| <= c n eps cond(H).
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(damped);
    const double condition = eigen.eigenvalues()(n - 1) / eigen.eigenvalues()(0);
    EXPECT_LT((u.transpose() * u * damped - Eigen::MatrixXd::Identity(n, n)).cwiseAbs().maxCoeff(),
              4 * n * 0x1p-24 * condition);
  }
}

TEST(InverseCholesky, FallsBackToFloat64ForAnIllConditionedMatrix) {
  // 1 + 1e-9 is 1 in float32, so that its second pivot is zero.
  const RowMatrix h = RowMatrix::Ones(2, 2);
  const InverseCholesky result = inverse_cholesky(h.data(), 2, 1e-9);
  ASSERT_EQ(result.failed_column, -1);
  EXPECT_TRUE(result.used_double);
}

TEST(InverseCholesky, NamesTheFirstBadColumnOfAnIndefiniteMatrix) {
  // Rows and columns are eliminated from the last to the first: column 2 is the first bad one met.
  RowMatrix h = RowMatrix::Identity(5, 5);
  h(2, 2) = -1;
  EXPECT_EQ(inverse_cholesky(h.data(), 5, 0.0).failed_column, 2);
}

TEST(QuadraticTrace, EqualsFloat64) {
  const int rows = 17;
  for (const int n : {1, 64, 192, 193, 400}) {
    const RowMatrix x = random_matrix(n + 10, n, 7), d = random_matrix(rows, n, 8);
    RowMatrix h = x.transpose() * x;
    mirror_lower(h.data(), n);
    const Eigen::MatrixXd dd = d.cast<double>(), hd = h.cast<double>();
    const double expected = (dd * hd).cwiseProduct(dd).sum();
    EXPECT_NEAR(quadratic_trace(d.data(), rows, h.data(), n), expected, 1e-12 * expected);
    EXPECT_NEAR(quadratic_trace(d.data(), rows, h.data(), n, /*cancels=*/false), expected,
                1e-6 * expected);
  }
}

TEST(KroneckerTrace, EqualsFloat64) {
  const int rows = 17;
  for (const int n : {1, 64, 193}) {
    const RowMatrix x = random_matrix(n + 10, n, 7), d = random_matrix(rows, n, 8),
                    y = random_matrix(rows + 3, rows, 9);
    RowMatrix h = x.transpose() * x, g = y.transpose() * y;
    mirror_lower(h.data(), n);
    mirror_lower(g.data(), rows);
    const Eigen::MatrixXd dd = d.cast<double>(), hd = h.cast<double>(), gd = g.cast<double>();
    const double expected = (gd * dd * hd).cwiseProduct(dd).sum();
    // n + rows roundings in each product of positive definite factors.
    EXPECT_NEAR(kronecker_trace(d.data(), rows, g.data(), h.data(), n), expected,
                (n + rows) * 0x1p-23 * expected);
  }
}

TEST(AddProductTransposed, EqualsEigen) {
  const RowMatrix a = random_matrix(9, 12, 1), b = random_matrix(9, 7, 2);
  RowMatrix c = random_matrix(10, 8, 3);
  RowMatrix expected = c;
  expected.topLeftCorner(10, 5) += -0.5f * a.leftCols(10).transpose() * b.leftCols(5);
  add_product_transposed(10, 5, 9, -0.5f, a.data(), 12, b.data(), 7, c.data(), 8);
  EXPECT_LT((c - expected).cwiseAbs().maxCoeff(), 1e-5f);
  add_product_transposed(0, 5, 9, 1.0f, nullptr, 1, b.data(), 7, c.data(), 8);
}

}  // namespace
}  // namespace curvq
