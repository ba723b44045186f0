#include "curvq/curvature/density.h"

#include <gtest/gtest.h>

#include "curvq/core/error.h"
#include "golden_matrix.h"

namespace curvq {
namespace {

double scalar(const torch::Tensor& t) { return t.item<double>(); }

double integral(const DensityResult& r) { return scalar(torch::trapezoid(r.density, r.at)); }

TEST(Density, WeightsSumToOneAndMomentsAreThoseOfTheProbe) {
  const torch::Tensor h = golden_matrix(golden_file("mlp_tanh_ce"), "hessian_triu");
  const int64_t n = h.size(0);
  DenseOperator op(h);
  DensityOptions options;
  options.steps = 10;
  const DensityResult r = spectral_density(op, options, make_generator(3));
  EXPECT_EQ(r.products, 80);
  EXPECT_LT(scalar((r.weights.sum(1) - 1).abs().max()), 1e-14);
  // The same probes by hand: v^T H^k v for k < 2 steps.
  torch::Generator generator = make_generator(3);
  for (int p = 0; p < 8; ++p) {
    const torch::Tensor v =
        draw_probes(ProbeKind::kRademacher, 1, n, torch::kFloat64, generator)[0] / std::sqrt(n);
    torch::Tensor hv = v;
    for (int k = 1; k < 20; ++k) {
      hv = h.mv(hv);
      const double expected = scalar(v.dot(hv));
      EXPECT_NEAR(scalar((r.weights[p] * r.nodes[p].pow(k)).sum()), expected,
                  1e-10 * std::pow(3.76, k))
          << k;
    }
  }
}

TEST(Density, TheSmoothedCurveIsThatOfTheTrueSpectrum) {
  const SafetensorsFile golden = golden_file("mlp_tanh_ce");
  DenseOperator op(golden_matrix(golden, "hessian_triu"));
  DensityOptions options;
  options.probes = 60;
  options.steps = 60;
  options.width = 0.15;
  const DensityResult r = spectral_density(op, options, make_generator(1));
  EXPECT_NEAR(integral(r), 1, 1e-3);
  const torch::Tensor lambda = golden_tensor(golden, "hessian_eigvals");
  const torch::Tensor z = (r.at.unsqueeze(0) - lambda.unsqueeze(1)) / options.width;
  const torch::Tensor truth =
      (-0.5 * z.square()).exp().mean(0) / (options.width * std::sqrt(2 * M_PI));
  const torch::Tensor error = (r.density - truth).abs();
  // 4 standard errors everywhere, beside what a mean over 60 skewed samples allows in the tails.
  EXPECT_TRUE((error <= 4 * r.standard_error + 1e-3 * truth.max()).all().item<bool>());
  EXPECT_NEAR(r.trace.value, scalar(lambda.sum()), 4 * r.trace.standard_error);
}

TEST(Density, MassNearZeroIsTheShareOfTheNullSpace) {
  // Rank 10 of 80, the eigenvalues far from zero.
  torch::Tensor lambda = torch::zeros({80}, torch::kFloat64);
  lambda.narrow(0, 0, 10).copy_(torch::linspace(1, 3, 10, torch::kFloat64));
  const torch::Tensor q =
      std::get<0>(torch::linalg_qr(torch::randn({80, 80}, make_generator(1), torch::kFloat64)));
  DenseOperator op(q.matmul(torch::diag(lambda)).matmul(q.t()));
  DensityOptions options;
  options.probes = 50;
  const DensityResult r = spectral_density(op, options, make_generator(2));
  EXPECT_NEAR(r.near_zero_mass.value, 70.0 / 80, 4 * r.near_zero_mass.standard_error);
  EXPECT_LT(r.near_zero_mass.standard_error, 0.02);
  // The Krylov space closes after 11 steps: 10 eigenvalues and zero.
  EXPECT_LE(r.products, 50 * 12);
}

TEST(Density, AMultipleOfTheIdentityIsOneNode) {
  DenseOperator op(2.5 * torch::eye(20, torch::kFloat64));
  const DensityResult r = spectral_density(op, {}, make_generator(1));
  EXPECT_EQ(r.products, 8);
  EXPECT_NEAR(scalar(r.nodes.max()), 2.5, 1e-14);
  EXPECT_NEAR(r.trace.value, 50, 1e-12);
  EXPECT_NEAR(r.near_zero_mass.value, 0, 1e-15);
  EXPECT_NEAR(integral(r), 1, 1e-3);
}

TEST(Density, BadOptionsNameFieldAndValue) {
  DenseOperator op(torch::eye(3, torch::kFloat64));
  for (const auto change : std::initializer_list<void (*)(DensityOptions&)>{
           [](DensityOptions& o) { o.probes = 1; }, [](DensityOptions& o) { o.steps = 1; },
           [](DensityOptions& o) { o.points = 1; }, [](DensityOptions& o) { o.width = -1; },
           [](DensityOptions& o) { o.near_zero = -1; }}) {
    DensityOptions options;
    change(options);
    EXPECT_THROW(spectral_density(op, options, make_generator(1)), UsageError);
  }
}

}  // namespace
}  // namespace curvq
