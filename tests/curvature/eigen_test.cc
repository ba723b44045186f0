#include "curvq/curvature/eigen.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "curvq/core/error.h"
#include "golden_matrix.h"

namespace curvq {
namespace {

// Counts the products.
class Counting : public DenseOperator {
 public:
  using DenseOperator::DenseOperator;
  torch::Tensor apply(const torch::Tensor& vectors) override {
    products += vectors.size(0);
    return DenseOperator::apply(vectors);
  }
  int64_t products = 0;
};

torch::Tensor with_spectrum(const torch::Tensor& eigenvalues) {
  const int64_t n = eigenvalues.size(0);
  const torch::Tensor q =
      std::get<0>(torch::linalg_qr(torch::randn({n, n}, make_generator(11), torch::kFloat64)));
  const torch::Tensor m = q.matmul(torch::diag(eigenvalues)).matmul(q.t());
  return 0.5 * (m + m.t());
}

double true_residual(const torch::Tensor& m, const EigenResult& r, int64_t k) {
  const torch::Tensor v = r.vectors[k];
  return (m.mv(v) - r.pairs[k].value * v).norm().item<double>();
}

class EigenOfNet : public testing::TestWithParam<const char*> {
 protected:
  EigenOfNet() : matrix_(golden_matrix(golden_file(GetParam()), "hessian_triu")), op_(matrix_) {
    std::ifstream file(golden_path(GetParam(), "golden.json"));
    golden_ = nlohmann::json::parse(file)["matrices"]["hessian"];
  }
  torch::Tensor matrix_;
  Counting op_;
  nlohmann::json golden_;
};

TEST_P(EigenOfNet, LargestMagnitudesAreTheGoldenOnes) {
  EigenOptions options;
  options.count = 10;
  options.tolerance = 1e-11;
  const EigenResult r = lanczos_eigenvalues(op_, options, make_generator(1));
  ASSERT_TRUE(r.converged);
  ASSERT_EQ(r.pairs.size(), 10u);
  EXPECT_EQ(r.iterations, op_.products);
  const std::vector<double> expected = golden_["top10_by_magnitude"];
  for (int k = 0; k < 10; ++k) {
    EXPECT_NEAR(r.pairs[k].value, expected[k], 1e-9 * std::abs(expected[0])) << k;
    EXPECT_NEAR(r.pairs[k].residual, true_residual(matrix_, r, k), 1e-12 * std::abs(expected[0]));
  }
  const torch::Tensor gram = r.vectors.matmul(r.vectors.t());
  EXPECT_LT((gram - torch::eye(10, torch::kFloat64)).abs().max().item<double>(), 1e-12);
}

TEST_P(EigenOfNet, BothEndsByName) {
  EigenOptions options;
  options.tolerance = 1e-10;
  options.which = Spectrum::kMostPositive;
  const EigenResult top = lanczos_eigenvalues(op_, options, make_generator(1));
  options.which = Spectrum::kMostNegative;
  const EigenResult bottom = lanczos_eigenvalues(op_, options, make_generator(1));
  const double high = golden_["lambda_max"], low = golden_["lambda_min"];
  EXPECT_NEAR(top.pairs[0].value, high, 1e-9 * high);
  EXPECT_NEAR(bottom.pairs[0].value, low, 1e-9 * high);
  options.which = Spectrum::kBothEnds;
  options.count = 4;
  const EigenResult both = lanczos_eigenvalues(op_, options, make_generator(1));
  EXPECT_NEAR(both.pairs[0].value, high, 1e-9 * high);
  EXPECT_NEAR(both.pairs[1].value, low, 1e-9 * high);
  EXPECT_GT(both.pairs[2].value, both.pairs[3].value);
}

TEST_P(EigenOfNet, ErrorsLieWithinTheirBounds) {
  const double truth = golden_["top10_by_magnitude"][0];
  int runs = 0, within = 0;
  for (int seed = 1; seed <= 100; ++seed) {
    for (const double tolerance : {1e-2, 1e-3, 1e-6}) {
      EigenOptions options;
      options.tolerance = tolerance;
      const EigenResult r = lanczos_eigenvalues(op_, options, make_generator(seed));
      EXPECT_TRUE(r.converged);
      EXPECT_LE(r.pairs[0].error_bound, tolerance * std::abs(r.pairs[0].value));
      EXPECT_NEAR(r.pairs[0].residual, true_residual(matrix_, r, 0), 1e-12);
      ++runs;
      within += std::abs(r.pairs[0].value - truth) <= r.pairs[0].error_bound + 1e-14;
    }
  }
  // Not a theorem: a start vector may miss the eigenvector, one in a hundred times does.
  EXPECT_GE(within, 0.98 * runs);
}

TEST_P(EigenOfNet, AFewProductsGiveThreeDigits) {
  const double truth = golden_["top10_by_magnitude"][0];
  int64_t products = 0, right = 0;
  for (int seed = 1; seed <= 100; ++seed) {
    const EigenResult r = lanczos_eigenvalues(op_, {}, make_generator(seed));
    products += r.iterations;
    right += std::abs(r.pairs[0].value - truth) <= 1e-3 * std::abs(truth);
  }
  EXPECT_GE(right, 98);
  EXPECT_LE(products, 800);  // 5 to 7.5 in the mean
}

TEST_P(EigenOfNet, PowerIterationAgreesAndNeedsMore) {
  EigenOptions options;
  options.count = 2;
  options.tolerance = 1e-6;
  options.max_products = 2000;
  const EigenResult power = power_iteration(op_, options, make_generator(1));
  EXPECT_TRUE(power.converged);
  EXPECT_EQ(power.iterations, op_.products);
  const std::vector<double> expected = golden_["top10_by_magnitude"];
  for (int k = 0; k < 2; ++k) {
    // The second is that of the deflated matrix: the first vector's error enters squared.
    EXPECT_NEAR(power.pairs[k].value, expected[k], 1e-6 * expected[0]);
    EXPECT_LE(std::abs(power.pairs[k].value - expected[k]), power.pairs[k].error_bound);
  }
  EXPECT_LT(2 * lanczos_eigenvalues(op_, options, make_generator(1)).iterations, power.iterations);
}

TEST_P(EigenOfNet, HessianIsIndefiniteAndItsGaussNewtonPartIsNot) {
  const DefinitenessResult h = definiteness(op_, {}, make_generator(1));
  EXPECT_EQ(h.verdict, Definiteness::kIndefinite);
  EXPECT_LT(h.most_negative.value, 0);
  DenseOperator ggn(golden_matrix(golden_file(GetParam()), "ggn_triu"));
  EXPECT_EQ(definiteness(ggn, {}, make_generator(1)).verdict, Definiteness::kPositiveSemidefinite);
  DenseOperator damped(ggn.matrix() + 0.1 * torch::eye(ggn.dimension(), torch::kFloat64));
  EXPECT_EQ(definiteness(damped, {}, make_generator(1)).verdict, Definiteness::kPositiveDefinite);
  DenseOperator negative(-damped.matrix());
  EXPECT_EQ(definiteness(negative, {}, make_generator(1)).verdict, Definiteness::kNegativeDefinite);
}

INSTANTIATE_TEST_SUITE_P(Golden, EigenOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Lanczos, AFullBasisGivesEveryEigenvalue) {
  const torch::Tensor h = golden_matrix(golden_file("deep_linear_mse"), "hessian_triu");
  const int64_t n = h.size(0);
  DenseOperator op(h);
  EigenOptions options;
  options.which = Spectrum::kMostNegative;
  options.count = n;
  options.basis_size = n + 2;
  options.tolerance = 1e-11;
  const EigenResult r = lanczos_eigenvalues(op, options, make_generator(1));
  EXPECT_TRUE(r.converged);
  EXPECT_EQ(r.iterations, n);
  const torch::Tensor expected = golden_tensor(golden_file("deep_linear_mse"), "hessian_eigvals");
  for (int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(r.pairs[i].value, expected[i].item<double>(), 1e-9) << i;
}

TEST(Lanczos, FewProductsForADominantEigenvalue) {
  // As in real networks: a few outliers over a bulk.
  torch::Tensor lambda = torch::linspace(-1, 3, 400, torch::kFloat64);
  lambda.narrow(0, 0, 3).copy_(torch::tensor({60.0, 25.0, 14.0}, torch::kFloat64));
  Counting op(with_spectrum(lambda));
  for (int seed = 1; seed <= 20; ++seed) {
    const EigenResult r = lanczos_eigenvalues(op, {}, make_generator(seed));
    EXPECT_LE(r.iterations, 7);
    EXPECT_NEAR(r.pairs[0].value, 60, 1e-3 * 60);
  }
}

TEST(Lanczos, RestartsKeepTheBasisBounded) {
  // A dense spectrum: the extreme eigenvalues separate slowly.
  const torch::Tensor lambda = torch::linspace(0, 1, 300, torch::kFloat64);
  const torch::Tensor m = with_spectrum(lambda);
  DenseOperator op(m);
  EigenOptions options;
  options.count = 3;
  options.basis_size = 12;
  options.tolerance = 1e-9;
  options.max_products = 2000;
  const EigenResult r = lanczos_eigenvalues(op, options, make_generator(2));
  EXPECT_TRUE(r.converged);
  EXPECT_GT(r.iterations, 30);
  for (int k = 0; k < 3; ++k) {
    EXPECT_NEAR(r.pairs[k].value, lambda[299 - k].item<double>(), 1e-9);
    EXPECT_NEAR(r.pairs[k].residual, true_residual(m, r, k), 1e-12);
  }
}

TEST(Lanczos, FindsTheCopiesOfAMultipleEigenvalue) {
  torch::Tensor lambda = torch::ones({30}, torch::kFloat64);
  lambda.narrow(0, 0, 3).fill_(5.0);
  DenseOperator op(with_spectrum(lambda));
  EigenOptions options;
  options.count = 4;
  options.tolerance = 1e-9;
  const EigenResult r = lanczos_eigenvalues(op, options, make_generator(1));
  EXPECT_TRUE(r.converged);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(r.pairs[k].value, k < 3 ? 5 : 1, 1e-9) << k;
}

TEST(Lanczos, ZeroAndOneDimensionalOperators) {
  DenseOperator zero(torch::zeros({5, 5}, torch::kFloat64));
  const EigenResult r = lanczos_eigenvalues(zero, {}, make_generator(1));
  EXPECT_TRUE(r.converged);
  EXPECT_EQ(r.pairs[0].value, 0);
  EXPECT_EQ(definiteness(zero, {}, make_generator(1)).verdict, Definiteness::kPositiveSemidefinite);
  DenseOperator one(torch::full({1, 1}, -2.0, torch::kFloat64));
  EXPECT_NEAR(lanczos_eigenvalues(one, {}, make_generator(1)).pairs[0].value, -2, 1e-15);
  EXPECT_EQ(definiteness(one, {}, make_generator(1)).verdict, Definiteness::kNegativeDefinite);
}

TEST(Lanczos, SaysWhenItHasNotConverged) {
  DenseOperator op(with_spectrum(torch::linspace(0, 1, 300, torch::kFloat64)));
  EigenOptions options;
  options.tolerance = 1e-9;
  options.max_products = 5;
  const EigenResult r = lanczos_eigenvalues(op, options, make_generator(1));
  EXPECT_FALSE(r.converged);
  EXPECT_EQ(r.iterations, 5);
  EXPECT_FALSE(power_iteration(op, options, make_generator(1)).converged);
}

TEST(Lanczos, StartsWhereItIsTold) {
  const torch::Tensor h = golden_matrix(golden_file("mlp_tanh_ce"), "hessian_triu");
  DenseOperator op(h);
  EigenOptions options;
  const int64_t anywhere = lanczos_eigenvalues(op, options, make_generator(1)).iterations;
  options.start = std::get<1>(torch::linalg_eigh(h)).select(1, h.size(0) - 1) + 1e-3;
  const EigenResult near = lanczos_eigenvalues(op, options, make_generator(1));
  EXPECT_LT(near.iterations, anywhere);
  EXPECT_LE(near.iterations, 2);
}

TEST(Lanczos, BadOptionsNameFieldAndValue) {
  DenseOperator op(torch::eye(4, torch::kFloat64));
  const auto with = [&](auto change) {
    EigenOptions options;
    change(options);
    EXPECT_THROW(lanczos_eigenvalues(op, options, make_generator(1)), UsageError);
  };
  with([](EigenOptions& o) { o.count = 0; });
  with([](EigenOptions& o) { o.count = 5; });
  with([](EigenOptions& o) { o.tolerance = 0; });
  with([](EigenOptions& o) { o.max_products = 0; });
  with([](EigenOptions& o) { o.basis_size = 2; });
  with([](EigenOptions& o) { o.start = torch::ones({3}); });
  EigenOptions options;
  options.which = Spectrum::kMostNegative;
  EXPECT_THROW(power_iteration(op, options, make_generator(1)), UsageError);
  options.which = Spectrum::kLargestMagnitude;
  options.start = torch::zeros({4});
  EXPECT_THROW(lanczos_eigenvalues(op, options, make_generator(1)), NumericalError);
}

}  // namespace
}  // namespace curvq
