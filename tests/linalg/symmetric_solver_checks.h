// What every SymmetricSolver must do, against residuals in float64.
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <limits>
#include <random>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/linalg/symmetric_solver.h"

namespace curvq {

template <typename T>
using SolverMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// X^T X / n + 0.1 I with X normal, [n, n].
template <typename T>
SolverMatrix<T> positive_matrix(int n) {
  std::mt19937 random(n);
  std::normal_distribution<T> normal;
  SolverMatrix<T> x(n, n);
  for (int i = 0; i < x.size(); ++i) x.data()[i] = normal(random);
  return x.transpose() * x / n + T(0.1) * SolverMatrix<T>::Identity(n, n);
}

// Only the lower triangle may be read.
template <typename T>
SolverMatrix<T> lower_half(const SolverMatrix<T>& a) {
  SolverMatrix<T> half = a;
  half.template triangularView<Eigen::StrictlyUpper>().setConstant(
      std::numeric_limits<T>::quiet_NaN());
  return half;
}

template <typename T>
void check_solver(SymmetricSolver& solver) {
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const int n : {1, 2, 17, 120}) {
    SCOPED_TRACE(testing::Message() << solver.name() << " " << n);
    const SolverMatrix<T> a = positive_matrix<T>(n);
    const Eigen::MatrixXd exact =
        SolverMatrix<T>(a.template selfadjointView<Eigen::Lower>()).template cast<double>();
    const double size = exact.norm();

    SolverMatrix<T> factor = lower_half(a);
    ASSERT_TRUE(solver.cholesky(n, factor.data()));
    EXPECT_TRUE(factor.isLowerTriangular(0));
    const Eigen::MatrixXd l = factor.template cast<double>();
    EXPECT_LT((l * l.transpose() - exact).norm(), n * epsilon * size);  // Higham 2002, 10.3

    SolverMatrix<T> inverse = lower_half(a);
    ASSERT_TRUE(solver.inverse(n, inverse.data()));
    EXPECT_TRUE(inverse == inverse.transpose());
    const double condition = size * exact.inverse().norm();
    EXPECT_LT((inverse.template cast<double>() * exact - Eigen::MatrixXd::Identity(n, n)).norm(),
              4 * n * epsilon * condition);

    SolverMatrix<T> rows = lower_half(a);
    std::vector<T> values(n);
    solver.eigen(n, rows.data(), values.data());
    const Eigen::MatrixXd v = rows.template cast<double>();
    const Eigen::VectorXd lambda =
        Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>(values.data(), n).template cast<double>();
    EXPECT_LT((v * exact - lambda.asDiagonal() * v).norm(), 4 * n * epsilon * size);
    EXPECT_LT((v * v.transpose() - Eigen::MatrixXd::Identity(n, n)).norm(), 4 * n * epsilon);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  }

  SolverMatrix<T> indefinite = SolverMatrix<T>::Identity(6, 6);
  indefinite(3, 3) = -1;
  SolverMatrix<T> copy = indefinite;
  EXPECT_FALSE(solver.cholesky(6, copy.data()));
  copy = indefinite;
  EXPECT_FALSE(solver.inverse(6, copy.data()));
}

}  // namespace curvq
