// improve_pruned(): fits and masks of sweeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/prune_testing.h"
#include "curvq/core/error.h"
#include "curvq/core/parallel.h"

namespace curvq {
namespace {

TEST(Prune, SweepsComeCloseToTheBestOfAllMasks) {
  set_num_threads(1);  // rows of one strip: nothing to share
  int best_found = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const RowMatrix w = random_matrix(1, 6, 100 + seed), h = random_hessian(6, 40, 200 + seed);
    const Eigen::MatrixXd h64 = h.cast<double>();
    const Eigen::VectorXd row = w.row(0).cast<double>().transpose();
    double best = std::numeric_limits<double>::infinity();
    for (int bits = 0; bits < 64; ++bits) {
      std::vector<int> kept;
      for (int j = 0; j < 6; ++j) {
        if (bits >> j & 1) kept.push_back(j);
      }
      if (kept.size() == 3) best = std::min(best, cost(row, least_squares(row, h64, kept), h64));
    }
    const double plain =
        objective(w, prune(problem_of(w, h), options_of(PruneMethod::kObs, "0.5")).matrix, h);
    const PrunedMatrix q = prune(problem_of(w, h), options_of(PruneMethod::kObs, "0.5", 3)).matrix;
    const double ours = objective(w, q, h);
    ASSERT_EQ(kept_of(q, 0).size(), 3u);
    // Rounding the values to float32 moves f by no more than eps^2 |H| |w|^2 and, around a minimum,
    // nothing of first order.
    const double rounding = 1e-6 * cost(row, Eigen::VectorXd::Zero(6), h64);
    EXPECT_GE(ours, best - rounding);
    EXPECT_LE(ours, plain + rounding);
    best_found += ours <= best + rounding;
  }
  EXPECT_GE(best_found, 14);  // a greedy choice among 20 masks; a random one would find 1
}

TEST(Prune, SweepsLeaveTheLeastSquaresFitOfTheKeptWeights) {
  const RowMatrix w = random_matrix(70, 16, 3), h = random_hessian(16, 200, 4);
  const Eigen::MatrixXd h64 = h.cast<double>();
  for (const char* pattern : {"0.5", "2:4"}) {
    // Eight kept weights a row, ten steps: conjugate gradients have come to their end.
    const PrunedMatrix q =
        prune(problem_of(w, h), options_of(PruneMethod::kObs, pattern, 1)).matrix;
    for (int r = 0; r < 70; ++r) {
      const std::vector<int> kept = kept_of(q, r);
      if (kept.size() > 10) continue;
      const Eigen::VectorXd row = w.row(r).cast<double>().transpose();
      const Eigen::VectorXd fit = least_squares(row, h64, kept);
      Eigen::VectorXd ours(16);
      for (int j = 0; j < 16; ++j) ours(j) = q.weight[r * 16 + j];
      EXPECT_LE(cost(row, ours, h64), cost(row, fit, h64) + 1e-6 * row.dot(h64 * row))
          << pattern << " row " << r;
    }
  }
}

TEST(Prune, ObjectiveNeverRisesAndIsTheTraceOfTheError) {
  const RowMatrix w = random_matrix(130, 150, 5), h = random_hessian(150, 400, 6);
  for (const PruneMethod method :
       {PruneMethod::kMagnitude, PruneMethod::kWanda, PruneMethod::kObd, PruneMethod::kObs}) {
    for (const char* pattern : {"0.5", "0.7", "2:4", "1:2", "3:5"}) {
      if (std::string(pattern) == "2:4" || std::string(pattern) == "4:8") {
        EXPECT_THROW(prune(problem_of(w, h), options_of(method, pattern)), UsageError);
        continue;  // 150 is no multiple
      }
      const PruneResult plain = prune(problem_of(w, h), options_of(method, pattern));
      const PruneResult swept = prune(problem_of(w, h), options_of(method, pattern, 4));
      ASSERT_EQ(swept.objectives.size(), 5u);
      const double start = objective(w, plain.matrix, h);
      EXPECT_NEAR(swept.objectives[0] / start, 1, 1e-6);
      for (size_t i = 1; i < 5; ++i)
        EXPECT_LE(swept.objectives[i], swept.objectives[i - 1] * (1 + 1e-12));
      EXPECT_LT(swept.objectives[4], 0.95 * start);
      EXPECT_NEAR(objective(w, swept.matrix, h) / swept.objectives[4], 1, 1e-5);
    }
  }
}

TEST(Prune, RankDeficientHessianWithoutDampingRaisesIt) {
  const RowMatrix w = random_matrix(8, 64, 14), x = random_matrix(16, 64, 15);
  const RowMatrix h = 2.0f / 16 * x.transpose() * x;
  PruneOptions options = options_of(PruneMethod::kObs, "0.5", 3);
  options.damping = 0;
  const PruneResult result = prune(problem_of(w, h), options);
  EXPECT_GT(result.damping, 0);
  EXPECT_FALSE(result.raised_because.empty());
  for (const float v : result.matrix.weight) EXPECT_TRUE(std::isfinite(v));
  EXPECT_LT(result.objectives.back(), 0.95 * result.objectives.front());
  // 32 weights a row can do all that 16 inputs ask for, at the cost of all other ones.
  PrunedMatrix exact = result.matrix;
  improve_pruned(w.data(), h.data(), options.pattern, 3, exact);
  EXPECT_LT(objective(w, exact, h), 1e-3 * objective(w, result.matrix, h));
  const RowMatrix others = RowMatrix::Identity(64, 64);  // E x x^T
  EXPECT_LT(objective(w, result.matrix, others), 0.8 * objective(w, exact, others));
}

}  // namespace
}  // namespace curvq
