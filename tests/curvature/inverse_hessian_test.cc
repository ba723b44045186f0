#include "curvq/curvature/inverse_hessian.h"

#include <gtest/gtest.h>

#include "curvq/core/error.h"
#include "curvq/curvature/statistics.h"
#include "golden_matrix.h"

namespace curvq {
namespace {

double relative(const torch::Tensor& found, const torch::Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

class InverseOfNet : public testing::TestWithParam<const char*> {
 protected:
  InverseOfNet()
      : golden_(golden_file(GetParam())), rows_(golden_tensor(golden_, "per_term_grad")) {}
  SafetensorsFile golden_;
  torch::Tensor rows_;
};

TEST_P(InverseOfNet, IsTheGoldenShermanMorrisonInverse) {
  const torch::Tensor probes =
      golden_tensor(SafetensorsFile(golden_path(GetParam(), "data.safetensors")), "probes");
  for (const int64_t rank : {1, 7, 32}) {
    const InverseHessian f = inverse_hessian(rows_, {.alpha = 1e-2, .rank = rank});
    EXPECT_LT(relative(f.block(0), golden_matrix(golden_, "sm_inverse_alpha1e-2_triu")), 1e-11);
    EXPECT_LT(relative(f.diagonal(), golden_tensor(golden_, "sm_diag_alpha1e-2")), 1e-11);
    EXPECT_LT(relative(f.solve(probes), golden_tensor(golden_, "sm_solve_alpha1e-2")), 1e-11);
    // 1 / alpha amplifies rounding: condition 1e5 times the eigenvalues.
    const InverseHessian g = inverse_hessian(rows_, {.alpha = 1e-5, .rank = rank});
    EXPECT_LT(relative(g.diagonal(), golden_tensor(golden_, "sm_diag_alpha1e-5")), 1e-9);
    EXPECT_LT(relative(g.solve(probes), golden_tensor(golden_, "sm_solve_alpha1e-5")), 1e-9);
  }
}

TEST_P(InverseOfNet, IsTheDampedDirectInverse) {
  const torch::Tensor fisher = rows_.t().matmul(rows_) / rows_.size(0);
  for (const double alpha : {1e-2, 1e-5}) {
    const torch::Tensor direct = damped_inverse(fisher, alpha);
    EXPECT_LT(relative(inverse_hessian(rows_, {.alpha = alpha}).block(0), direct), 1e-9);
  }
}

TEST_P(InverseOfNet, RowsMayComeInPieces) {
  const int64_t m = rows_.size(0), n = rows_.size(1);
  InverseHessian pieces(n, m, {.rank = 3}, rows_.options());
  pieces.add(rows_.narrow(0, 0, 4));
  pieces.add(rows_.narrow(0, 4, m - 4));
  EXPECT_EQ(pieces.rows_added(), m);
  EXPECT_LT(relative(pieces.block(0), inverse_hessian(rows_, {}).block(0)), 1e-12);
  EXPECT_THROW(pieces.add(rows_.narrow(0, 0, 1)), UsageError);
}

TEST_P(InverseOfNet, BlocksAreInversesOfBlocks) {
  const int64_t n = rows_.size(1);
  const std::vector<Segment> blocks{{"a", 0, n / 4}, {"b", n / 4, n / 2}};
  const InverseHessian f = inverse_hessian(rows_, {.rank = 5, .blocks = blocks});
  const torch::Tensor fisher = rows_.t().matmul(rows_) / rows_.size(0);
  const torch::Tensor v = torch::randn({2, n}, make_generator(1), torch::kFloat64);
  const torch::Tensor solved = f.solve(v);
  for (size_t b = 0; b < 2; ++b) {
    const Segment& s = blocks[b];
    const torch::Tensor direct =
        damped_inverse(fisher.narrow(0, s.offset, s.size).narrow(1, s.offset, s.size), 1e-2);
    EXPECT_LT(relative(f.block(b), direct), 1e-10);
    EXPECT_LT(
        relative(solved.narrow(1, s.offset, s.size), v.narrow(1, s.offset, s.size).matmul(direct)),
        1e-10);
  }
  EXPECT_TRUE(std::isnan(f.diagonal()[n - 1].item<double>()));
  EXPECT_EQ(solved[0][n - 1].item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Golden, InverseOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(InverseHessian, StaysSymmetricAndPositive) {
  const torch::Tensor rows = torch::randn({500, 40}, make_generator(1), torch::kFloat32);
  const torch::Tensor inverse = inverse_hessian(rows, {.alpha = 1e-3}).block(0);
  EXPECT_LT((inverse - inverse.t()).abs().max().item<float>(),
            40 * 0x1p-23f * inverse.abs().max().item<float>());
  EXPECT_GT(torch::linalg_eigvalsh(inverse, "L")[0].item<float>(), 0);
}

TEST(InverseHessian, BadInputIsNamed) {
  const torch::Tensor rows = torch::ones({2, 3}, torch::kFloat64);
  EXPECT_THROW(inverse_hessian(rows, {.alpha = 0}), UsageError);
  EXPECT_THROW(inverse_hessian(rows, {.rank = 0}), UsageError);
  EXPECT_THROW(inverse_hessian(rows, {.blocks = {{"x", 2, 2}}}), UsageError);
  EXPECT_THROW(inverse_hessian(rows * std::nan(""), {}), NumericalError);
  EXPECT_THROW(InverseHessian(3, 0, {}, torch::kFloat64), UsageError);
  EXPECT_THROW(damped_inverse(-torch::eye(3, torch::kFloat64), 0.5), NumericalError);
}

}  // namespace
}  // namespace curvq
