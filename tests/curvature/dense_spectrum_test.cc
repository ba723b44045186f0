#include "curvq/curvature/dense_spectrum.h"

#include <gtest/gtest.h>

#include "curvature/golden.h"
#include "curvq/core/error.h"
#include "curvq/curvature/curvature_operator.h"
#include "curvq/curvature/finite_difference.h"

namespace curvq {
namespace {

using testing::Golden;

TEST(DenseEigenvalues, OfGoldenHessiansByMagnitude) {
  for (const std::string& net : testing::golden_nets()) {
    const Golden golden(net);
    const torch::Tensor all = golden.tensor("hessian_eigvals"), h = golden.matrix("hessian");
    const torch::Tensor order = all.abs().argsort(0, /*descending=*/true);
    const double tolerance = 1e-11 * h.norm().item<double>();
    const EigenResult found = dense_eigenvalues(h, 6);
    ASSERT_EQ(found.pairs.size(), 6u);
    EXPECT_TRUE(found.converged);
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(found.pairs[i].value, all[order[i]].item<double>(), tolerance) << net << i;
      EXPECT_LT(found.pairs[i].residual, tolerance);
    }
    EXPECT_TRUE(torch::allclose(found.vectors.mm(found.vectors.t()), torch::eye(6, torch::kFloat64),
                                0, 1e-12));
  }
  EXPECT_THROW(dense_eigenvalues(torch::eye(3), 4), UsageError);
}

TEST(DenseDensity, IntegratesToOneAndCountsWhatIsZero) {
  // Rank 3 of 10: seven eigenvalues are zero.
  torch::Tensor m = torch::zeros({10, 10}, torch::kFloat64);
  m[0][0] = 5;
  m[4][4] = 2;
  m[7][7] = -1;
  const DensityResult density = dense_density(m, {});
  EXPECT_DOUBLE_EQ(density.weights.sum().item<double>(), 1);
  EXPECT_DOUBLE_EQ(density.near_zero_mass.value, 0.7);
  EXPECT_DOUBLE_EQ(density.trace.value, 6);
  const double integral = torch::trapezoid(density.density, density.at).item<double>();
  EXPECT_NEAR(integral, 1, 2e-3);  // a Gaussian has 2.7e-3 beyond three deviations, on both sides
}

TEST(FiniteDifference, SeesARightAndAWrongProduct) {
  const Problem problem = testing::golden_problem("mlp_tanh_ce");
  CurvatureOperator hessian(problem, Curvature::kHessian);
  const torch::Tensor v = torch::cos(torch::arange(problem.dimension(), torch::kFloat64));
  const torch::Tensor before = problem.gradient().gradient;
  const torch::Tensor hv = hessian.apply(v.unsqueeze(0))[0];
  // (1 + |theta|)^2 epsilon^(2/3) = 4e-11 * 400, times the ratio of third to second derivatives.
  EXPECT_LT(finite_difference_error(problem, v, hv), 1e-6);
  EXPECT_NEAR(finite_difference_error(problem, v, 2 * hv), 0.5, 1e-6);
  EXPECT_TRUE(torch::equal(problem.gradient().gradient, before));
}

}  // namespace
}  // namespace curvq
