#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compress/prune_testing.h"
#include "curvq/core/error.h"
#include "curvq/core/parallel.h"

namespace curvq {
namespace {

using testing::HasSubstr;

// SparseGPT column by column in float64: explicit inverses of what is left, no factor, no blocks of
// updates. A mask is chosen for `block` columns at a time, over all rows.
PrunedMatrix textbook(const RowMatrix& w, const RowMatrix& h, const SparsityPattern& pattern,
                      int block) {
  const int k = static_cast<int>(w.cols()), rows = static_cast<int>(w.rows());
  const Eigen::MatrixXd damped = h.cast<double>() + 0.01 * h.cast<double>().diagonal().mean() *
                                                        Eigen::MatrixXd::Identity(k, k);
  const auto inverse_from = [&](int j) {
    return Eigen::MatrixXd(damped.bottomRightCorner(k - j, k - j).inverse());
  };
  // The inverse's leading entry when all columns before j are gone through: what U_jj^2 is.
  std::vector<double> pivot(k);
  for (int j = 0; j < k; ++j) pivot[j] = inverse_from(j)(0, 0);
  Eigen::MatrixXd left = w.cast<double>();
  PrunedMatrix out{rows, k, std::vector<float>(rows * k), std::vector<uint8_t>(rows * k, 1)};
  const auto remove_smallest = [&](std::vector<std::pair<double, int>> order, int count) {
    std::sort(order.begin(), order.end());
    for (int i = 0; i < count; ++i) out.mask[order[i].second] = 0;
  };
  for (int j = 0; j < k; ++j) {
    const int group = static_cast<int>(pattern.group);
    if (group > 0 && j % group == 0) {
      for (int r = 0; r < rows; ++r) {
        std::vector<std::pair<double, int>> order;
        for (int c = j; c < j + group; ++c)
          order.emplace_back(left(r, c) * left(r, c) / pivot[c], r * k + c);
        remove_smallest(order, group - static_cast<int>(pattern.keep));
      }
    } else if (group == 0 && j % block == 0) {
      std::vector<std::pair<double, int>> order;
      for (int r = 0; r < rows; ++r) {
        for (int c = j; c < std::min(k, j + block); ++c)
          order.emplace_back(left(r, c) * left(r, c) / pivot[c], r * k + c);
      }
      remove_smallest(order, static_cast<int>(order.size() * pattern.sparsity));
    }
    const Eigen::MatrixXd inverse = inverse_from(j);
    for (int r = 0; r < rows; ++r) {
      if (!out.mask[r * k + j]) {
        const double error = left(r, j) / inverse(0, 0);
        left.row(r).tail(k - j) -= error * inverse.row(0);
      }
      out.weight[r * k + j] = out.mask[r * k + j] ? static_cast<float>(left(r, j)) : 0.0f;
    }
  }
  return out;
}

TEST(Prune, ObsEqualsTheTextbookAlgorithmInFloat64) {
  const RowMatrix w = random_matrix(70, 96, 1), h = random_hessian(96, 500, 2);
  for (const char* pattern : {"0.5", "0.25", "2:4", "1:4", "4:8"}) {
    PruneOptions options = options_of(PruneMethod::kObs, pattern);
    options.block_size = 32;
    const PrunedMatrix ours = prune(problem_of(w, h), options).matrix;
    const PrunedMatrix reference = textbook(w, h, options.pattern, 32);
    int different = 0;
    for (size_t i = 0; i < ours.mask.size(); ++i) different += ours.mask[i] != reference.mask[i];
    // Two saliencies within float32's error of each other may change places: a handful.
    EXPECT_LE(different, 70) << pattern;
    EXPECT_NEAR(objective(w, ours, h) / objective(w, reference, h), 1, 1e-2) << pattern;
  }
}

TEST(Prune, PatternsHoldExactly) {
  const RowMatrix w = random_matrix(67, 60, 7), h = random_hessian(60, 300, 8);
  for (const PruneMethod method :
       {PruneMethod::kMagnitude, PruneMethod::kWanda, PruneMethod::kObd, PruneMethod::kObs}) {
    for (const int sweeps : {0, 2}) {
      for (const char* pattern : {"2:4", "1:4", "3:6", "11:12"}) {
        const PruneOptions options = options_of(method, pattern, sweeps);
        const PrunedMatrix q = prune(problem_of(w, h), options).matrix;
        for (int64_t i = 0; i < 67 * 60; i += options.pattern.group) {
          EXPECT_EQ(
              std::accumulate(q.mask.begin() + i, q.mask.begin() + i + options.pattern.group, 0),
              options.pattern.keep);
        }
      }
      for (const double sparsity : {0.0, 0.3, 0.5, 0.99}) {
        PruneOptions options = options_of(method, "0.5", sweeps);
        options.pattern.sparsity = sparsity;
        const PrunedMatrix q = prune(problem_of(w, h), options).matrix;
        int64_t gone = 0;
        for (size_t i = 0; i < q.mask.size(); ++i) {
          gone += !q.mask[i];
          EXPECT_TRUE(q.mask[i] || q.weight[i] == 0);
        }
        EXPECT_EQ(gone, std::llround(sparsity * 67 * 60));
        if (sparsity == 0) {
          EXPECT_EQ(objective(w, q, h), 0);
        }
      }
    }
  }
}

TEST(Prune, SaliencyMethodsCompareWhatTheySay) {
  RowMatrix w(2, 4), h = RowMatrix::Zero(4, 4);
  w << 1, -2, 3, -4, 10, 20, -30, 40;
  h.diagonal() << 1000, 1, 1, 1;
  const auto mask = [&](PruneMethod method) {
    return prune(problem_of(w, h), options_of(method, "0.5")).matrix.mask;
  };
  EXPECT_THAT(mask(PruneMethod::kMagnitude), testing::ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(mask(PruneMethod::kWanda), testing::ElementsAre(1, 0, 0, 1, 1, 0, 0, 1));
  EXPECT_THAT(mask(PruneMethod::kObd), testing::ElementsAre(1, 0, 0, 0, 1, 0, 1, 1));
  RowMatrix diagonal = RowMatrix::Ones(2, 4);
  diagonal(0, 1) = 1e6f;
  PruneProblem problem = problem_of(w, h);
  problem.diagonal = diagonal.data();
  problem.hessian = nullptr;
  const PrunedMatrix q = prune(problem, options_of(PruneMethod::kObd, "0.5")).matrix;
  EXPECT_THAT(q.mask, testing::ElementsAre(0, 1, 0, 0, 0, 1, 1, 1));
  EXPECT_THAT(q.weight, testing::ElementsAre(0, -2, 0, 0, 0, 20, -30, 40));
}

TEST(Prune, DoesNotDependOnThreads) {
  const RowMatrix w = random_matrix(200, 96, 9), h = random_hessian(96, 300, 10);
  for (const char* pattern : {"0.5", "2:4"}) {
    const auto run = [&](int threads) {
      set_num_threads(threads);
      return prune(problem_of(w, h), options_of(PruneMethod::kObs, pattern, 2)).matrix;
    };
    const PrunedMatrix one = run(1), two = run(2);
    EXPECT_EQ(one.mask, two.mask);
    EXPECT_EQ(one.weight, two.weight);
  }
}

TEST(Prune, WeightsOfDeadInputsGoFirstAndTheDampingIgnoresThem) {
  const RowMatrix w = random_matrix(10, 64, 11) * 100;
  RowMatrix h = random_hessian(64, 300, 12) * 1e-6f;
  for (const int dead : {0, 5, 63}) {
    h.row(dead).setZero();
    h.col(dead).setZero();
  }
  for (const int sweeps : {0, 2}) {
    const PruneResult result =
        prune(problem_of(w, h), options_of(PruneMethod::kObs, "0.5", sweeps));
    EXPECT_EQ(result.dead_inputs, 3);
    EXPECT_FALSE(result.all_dead);
    for (int r = 0; r < 10; ++r) {
      for (const int dead : {0, 5, 63}) EXPECT_EQ(result.matrix.mask[r * 64 + dead], 0);
    }
    // The problem without these inputs, in which as many of the other weights go.
    std::vector<int> live;
    for (int j = 0; j < 64; ++j) {
      if (h(j, j) != 0) live.push_back(j);
    }
    const std::vector<int> all_rows = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const RowMatrix live_w = w(all_rows, live), live_h = h(live, live);
    PruneOptions options = options_of(PruneMethod::kObs, "0.5", sweeps);
    options.pattern.sparsity = 290.0 / 610;
    const PruneResult alone = prune(problem_of(live_w, live_h), options);
    EXPECT_NEAR(objective(w, result.matrix, h) / objective(live_w, alone.matrix, live_h), 1,
                sweeps == 0 ? 1e-3 : 0.05);  // sweeps cut the columns into other blocks
  }
}

TEST(Prune, AllZeroHessianGivesTheMaskOfMagnitude) {
  const RowMatrix w = random_matrix(4, 32, 13), h = RowMatrix::Zero(32, 32);
  const PruneResult obs = prune(problem_of(w, h), options_of(PruneMethod::kObs, "0.5", 2));
  EXPECT_TRUE(obs.all_dead);
  EXPECT_TRUE(obs.objectives.empty());
  const PruneResult magnitude = prune(problem_of(w, h), options_of(PruneMethod::kMagnitude, "0.5"));
  EXPECT_EQ(obs.matrix.mask, magnitude.matrix.mask);
  EXPECT_EQ(obs.matrix.weight, magnitude.matrix.weight);
}

TEST(Prune, NamesWhatIsNotFinite) {
  RowMatrix w = random_matrix(4, 32, 16), h = random_hessian(32, 100, 17);
  const auto message = [&](PruneMethod method) {
    try {
      prune(problem_of(w, h), options_of(method, "0.5"));
    } catch (const NumericalError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  h(3, 7) = std::numeric_limits<float>::infinity();
  for (const PruneMethod method :
       {PruneMethod::kMagnitude, PruneMethod::kWanda, PruneMethod::kObd, PruneMethod::kObs}) {
    EXPECT_THAT(message(method), HasSubstr("layer: the hessian is not finite in 1 of 1024 entries, "
                                           "the first at row 3, column 7"));
  }
  w(1, 5) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message(PruneMethod::kMagnitude),
              HasSubstr("layer: the weight is not finite at row 1, column 5"));
  w(1, 5) = 0;
  h = -RowMatrix::Identity(32, 32);
  EXPECT_THAT(message(PruneMethod::kObs), HasSubstr("finite but not positive definite"));
}

TEST(Prune, SaysWhatIsMissing) {
  const RowMatrix w = random_matrix(4, 32, 18);
  PruneProblem problem = problem_of(w, RowMatrix());
  problem.hessian = nullptr;
  EXPECT_NO_THROW(prune(problem, options_of(PruneMethod::kMagnitude, "2:4")));
  for (const auto& [options, says] :
       {std::pair(options_of(PruneMethod::kObs, "0.5"), "obs needs this layer's hessian"),
        std::pair(options_of(PruneMethod::kWanda, "0.5"), "wanda needs this layer's hessian"),
        std::pair(options_of(PruneMethod::kMagnitude, "0.5", 1), "sweep needs"),
        std::pair(options_of(PruneMethod::kWoodFisher, "0.5"), "woodfisher needs gradients"),
        std::pair(options_of(PruneMethod::kMagnitude, "2:5"),
                  "layer: its 32 inputs are no multiple of 5")}) {
    try {
      prune(problem, options);
      ADD_FAILURE() << says;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(Prune, WoodFisherMinimisesTheFisherFormOfABlock) {
  const RowMatrix w = random_matrix(5, 24, 19);
  const RowMatrix gradients = random_matrix(40, 5 * 24, 20);
  PruneProblem problem = problem_of(w, RowMatrix());
  problem.hessian = nullptr;
  problem.gradients = gradients.data();
  problem.num_gradients = 40;
  PruneOptions options = options_of(PruneMethod::kWoodFisher, "2:4");
  options.damping = 0.1;
  const PrunedMatrix q = prune(problem, options).matrix;
  const double alpha = 0.1 * gradients.cast<double>().array().square().mean();
  for (int r = 0; r < 5; ++r) {
    // All 24 weights of a row are one block.
    const Eigen::MatrixXd g = gradients.cast<double>().middleCols(24 * r, 24);
    const Eigen::MatrixXd fisher =
        g.transpose() * g / 40 + alpha * Eigen::MatrixXd::Identity(24, 24);
    const Eigen::MatrixXd inverse = fisher.inverse();
    const Eigen::VectorXd row = w.row(r).cast<double>().transpose();
    for (int begin = 0; begin < 24; begin += 4) {
      double lowest_kept = HUGE_VAL, highest_gone = 0;
      for (int j = begin; j < begin + 4; ++j) {
        const double saliency = row(j) * row(j) / inverse(j, j);
        if (q.mask[r * 24 + j]) lowest_kept = std::min(lowest_kept, saliency);
        if (!q.mask[r * 24 + j]) highest_gone = std::max(highest_gone, saliency);
      }
      EXPECT_GT(lowest_kept, highest_gone);
    }
    const Eigen::VectorXd fit = least_squares(row, fisher, kept_of(q, r));
    // Float32 results of float64 arithmetic.
    for (int j = 0; j < 24; ++j)
      EXPECT_NEAR(q.weight[r * 24 + j], fit(j), 1e-6 * (1 + std::abs(fit(j))));
  }
}

TEST(SparsityPattern, ReadsAndRejects) {
  const SparsityPattern pattern = SparsityPattern::parse("1:4");
  EXPECT_EQ(pattern.keep, 1);
  EXPECT_EQ(pattern.group, 4);
  EXPECT_EQ(pattern.share(), 0.75);
  EXPECT_EQ(pattern.describe(), "1:4");
  EXPECT_EQ(SparsityPattern{}.describe(), "50 %");
  for (const char* bad : {"", "2", "2:", ":4", "4:2", "4:4", "0:4", "-1:4", "2:65", "2:4x", "a:b",
                          "2 : 4", "9999999999999999999:4"}) {
    EXPECT_THROW(SparsityPattern::parse(bad), UsageError) << bad;
  }
  for (const double bad : {-0.1, 1.0, 2.0, std::nan("")}) {
    SparsityPattern wrong;
    wrong.sparsity = bad;
    EXPECT_THROW(wrong.validate(), UsageError);
  }
  PruneOptions options;
  options.sweeps = -1;
  EXPECT_THROW(options.validate(), UsageError);
  options = PruneOptions{};
  options.block_size = 0;
  EXPECT_THROW(options.validate(), UsageError);
  EXPECT_THROW(parse_prune_method("sparsegpt"), UsageError);
  EXPECT_EQ(parse_prune_method("wanda"), PruneMethod::kWanda);
}

}  // namespace
}  // namespace curvq
