#include "curvq/curvature/diagonal.h"

#include <gtest/gtest.h>

#include "coverage.h"
#include "curvq/core/error.h"
#include "golden_matrix.h"

namespace curvq {
namespace {

class DiagonalOfNet : public testing::TestWithParam<const char*> {
 protected:
  DiagonalOfNet()
      : matrix_(golden_matrix(golden_file(GetParam()), "hessian_triu")),
        truth_(golden_tensor(golden_file(GetParam()), "hessian_diag")),
        op_(matrix_) {}
  // Shares of entries, over 200 seeds, within three standard errors and inside the 95 % interval.
  std::pair<double, double> shares(const std::function<DiagonalResult(uint64_t)>& estimate) const {
    int64_t within = 0, inside = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      const DiagonalResult r = estimate(seed);
      const torch::Tensor error = (r.value - truth_).abs();
      within += (error <= 3 * r.standard_error + 1e-14).sum().item<int64_t>();
      inside += (error <= r.half_width + 1e-14).sum().item<int64_t>();
    }
    const double all = 200.0 * truth_.numel();
    return {within / all, inside / all};
  }
  torch::Tensor matrix_, truth_;
  DenseOperator op_;
};

TEST_P(DiagonalOfNet, ExactIsTheGoldenDiagonal) {
  for (const int64_t chunk : {7, 64, 1000}) {
    const DiagonalResult r = exact_diagonal(op_, chunk);
    EXPECT_TRUE(torch::allclose(r.value, truth_, 0, 1e-12)) << chunk;
    EXPECT_EQ(r.products, op_.dimension());
    EXPECT_EQ(r.standard_error.max().item<double>(), 0);
  }
}

TEST_P(DiagonalOfNet, HutchinsonHasItsKnownVariance) {
  const DiagonalResult r = hutchinson_diagonal(op_, {.probes = 4000}, make_generator(1));
  const torch::Tensor sigma =
      ((matrix_.square().sum(1) - truth_.square()) / 4000).sqrt();  // sum_{j != i} H_ij^2
  EXPECT_TRUE(((r.value - truth_).abs() <= 5 * sigma + 1e-14).all().item<bool>());
  EXPECT_TRUE(torch::allclose(r.standard_error, sigma, 0.15, 1e-14));
}

TEST_P(DiagonalOfNet, ErrorBarsCover) {
  for (const ProbeKind probe : {ProbeKind::kRademacher, ProbeKind::kNormal}) {
    const auto [within, inside] = shares([&](uint64_t seed) {
      return hutchinson_diagonal(op_, {.probe = probe}, make_generator(seed));
    });
    // Entries of one run are not independent: seeds, not entries, count for the tolerance.
    EXPECT_GE(within, least_count(200, 0.99) / 200);
    EXPECT_GE(inside, least_count(200, 0.95) / 200);
    EXPECT_LE(inside, 0.97);
  }
  const auto [within, inside] =
      shares([&](uint64_t seed) { return xdiag(op_, 30, make_generator(seed)); });
  EXPECT_GE(within, least_count(200, 0.99) / 200);
  EXPECT_GE(inside, least_count(200, 0.95) / 200);
}

TEST_P(DiagonalOfNet, XDiagBeatsHutchinsonAtEqualProducts) {
  double x = 0, h = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    x += (xdiag(op_, 40, make_generator(seed)).value - truth_).square().sum().item<double>();
    h += (hutchinson_diagonal(op_, {.probes = 40}, make_generator(seed)).value - truth_)
             .square()
             .sum()
             .item<double>();
  }
  EXPECT_LT(x, h);
}

TEST(Diagonal, XDiagErrorBarsCoverOtherSpectra) {
  for (const double power : {0.5, 1.0, 3.0}) {
    const torch::Tensor q =
        std::get<0>(torch::linalg_qr(torch::randn({60, 60}, make_generator(7), torch::kFloat64)));
    const torch::Tensor eigenvalues = torch::arange(1, 61, torch::kFloat64).pow(-power);
    DenseOperator op((q * eigenvalues).matmul(q.t()));
    int64_t within = 0, inside = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      const DiagonalResult r = xdiag(op, 30, make_generator(seed));
      const torch::Tensor error = (r.value - op.matrix().diagonal()).abs();
      within += (error <= 3 * r.standard_error).sum().item<int64_t>();
      inside += (error <= r.half_width).sum().item<int64_t>();
    }
    EXPECT_GE(within, least_count(100, 0.99) / 100 * 6000) << power;  // seeds count, not entries
    EXPECT_GE(inside, least_count(100, 0.95) / 100 * 6000) << power;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DiagonalOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Diagonal, IsExactForADiagonalMatrixWithOneProbe) {
  const torch::Tensor d = torch::arange(1, 9, torch::kFloat64);
  DenseOperator op(torch::diag(d));
  const DiagonalResult r = hutchinson_diagonal(op, {.probes = 2}, make_generator(1));
  EXPECT_TRUE(r.value.equal(d));
  EXPECT_EQ(r.standard_error.max().item<double>(), 0);
}

TEST(Diagonal, ZeroHasNoError) {
  DenseOperator op(torch::zeros({3, 3}, torch::kFloat64));
  for (const ProbeKind probe : {ProbeKind::kRademacher, ProbeKind::kNormal}) {
    const DiagonalResult r = hutchinson_diagonal(op, {.probe = probe}, make_generator(1));
    EXPECT_EQ(r.standard_error.max().item<double>(), 0);
    EXPECT_EQ(r.half_width.max().item<double>(), 0);
  }
}

TEST(Diagonal, AveragesRunsWithinSegments) {
  const torch::Tensor d = torch::tensor({1., 2., 3., 4., 5., 10., 20.}, torch::kFloat64);
  DenseOperator op(torch::diag(d), {{"a", 0, 5}, {"b", 5, 2}});
  const DiagonalResult r =
      hutchinson_diagonal(op, {.probes = 2, .average_over = 2}, make_generator(1));
  EXPECT_TRUE(r.value.equal(torch::tensor({1.5, 1.5, 3.5, 3.5, 5., 15., 15.}, torch::kFloat64)));
}

TEST(Diagonal, XDiagOfAMatrixOfLowRankIsExact) {
  const torch::Tensor b = torch::randn({40, 4}, make_generator(9), torch::kFloat64);
  const torch::Tensor m = b.matmul(b.t());
  DenseOperator op(m);
  const DiagonalResult r = xdiag(op, 20, make_generator(1));
  EXPECT_TRUE(torch::allclose(r.value, m.diagonal(), 1e-11, 1e-11));
  DenseOperator tiny(m.narrow(0, 0, 5).narrow(1, 0, 5).contiguous());
  EXPECT_TRUE(torch::allclose(xdiag(tiny, 20, make_generator(1)).value, tiny.matrix().diagonal(),
                              1e-11, 1e-11));
}

TEST(Diagonal, BadOptionsNameFieldAndValue) {
  DenseOperator op(torch::eye(3, torch::kFloat64));
  EXPECT_THROW(hutchinson_diagonal(op, {.probes = 1}, make_generator(1)), UsageError);
  EXPECT_THROW(hutchinson_diagonal(op, {.average_over = 0}, make_generator(1)), UsageError);
  EXPECT_THROW(xdiag(op, 5, make_generator(1)), UsageError);
}

}  // namespace
}  // namespace curvq
