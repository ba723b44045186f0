#include "curvq/curvature/statistics.h"

#include <gtest/gtest.h>

#include "coverage.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

TEST(Statistics, StudentQuantilesAreThoseOfTheTables) {
  // Abramowitz and Stegun, table 26.10, and the closed forms for 1 and 2 degrees.
  EXPECT_NEAR(student_t_quantile(0.975, 1), 12.706204736432095, 1e-9);  // tan(0.475 pi)
  EXPECT_NEAR(student_t_quantile(0.975, 2), 0.95 * std::sqrt(2 / 0.0975), 1e-10);
  EXPECT_NEAR(student_t_quantile(0.975, 29), 2.045, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.975, 30), 2.042, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.995, 10), 3.169, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.975, 100000), 1.95996, 1e-4);
  EXPECT_THROW(student_t_quantile(0.5, 3), UsageError);
  EXPECT_THROW(student_t_quantile(0.975, 0), UsageError);
}

TEST(Statistics, MeanAndErrorOfSymmetricSamplesAreThePlainOnes) {
  const Estimate e = estimate_mean(torch::tensor({1.0, 2.0, 3.0, 4.0}, torch::kFloat64));
  EXPECT_DOUBLE_EQ(e.value, 2.5);
  EXPECT_NEAR(e.standard_error, std::sqrt(5.0 / 3.0) / 2, 1e-15);
  EXPECT_NEAR(e.half_width, 3.182446305284263 * e.standard_error, 1e-9);
  EXPECT_EQ(e.samples, 4);
}

TEST(Statistics, EqualSamplesHaveTheErrorOfTheirRounding) {
  const Estimate e = estimate_mean(torch::full({5}, 3.0, torch::kFloat64));
  EXPECT_EQ(e.standard_error, 3 * 0x1p-52);
  EXPECT_EQ(estimate_mean(torch::zeros({5})).standard_error, 0);
}

TEST(Statistics, FewerThanTwoSamplesAreAnError) {
  EXPECT_THROW(estimate_mean(torch::ones({1})), UsageError);
  EXPECT_THROW(estimate_mean(torch::ones({0})), UsageError);
}

TEST(Statistics, CoversTheMeanOfNormalAndOfChiSquareSamples) {
  for (const bool square : {false, true}) {
    const Coverage c = coverage(square ? 1 : 0, [&](uint64_t seed) {
      torch::Tensor x = torch::randn({30}, make_generator(seed), torch::kFloat64);
      return estimate_mean(square ? x.square() : x);
    });
    if (square) {  // skewness 2.8, the worst that one eigenvalue can do
      EXPECT_GE(c.within_three_errors, least_count(1000, 0.98));
      EXPECT_GE(c.inside_interval, least_count(1000, 0.95));
    } else {
      EXPECT_GE(c.within_three_errors, least_count(1000, 0.9945));  // Student's t at 29 degrees
      EXPECT_GE(c.inside_interval, least_count(1000, 0.95));
    }
  }
}

// z^T H z of normal z, H with eigenvalues i^-p of one sign or of alternating ones: spectra that
// nothing was chosen by.
TEST(Statistics, CoversTracesOfOtherSpectra) {
  constexpr int kRuns = 4000;
  for (const double power : {0.5, 1.0, 1.5, 2.0, 3.0}) {
    for (const bool indefinite : {false, true}) {
      torch::Tensor eigenvalues = torch::arange(1, 41, torch::kFloat64).pow(-power);
      if (indefinite) eigenvalues.slice(0, 1, {}, 2).neg_();
      const double trace = eigenvalues.sum().item<double>();
      const Coverage c = coverage(
          trace,
          [&](uint64_t seed) {
            const torch::Tensor z =
                torch::randn({30, 40}, make_generator(seed + 1000000), torch::kFloat64);
            return estimate_mean(z.square().mv(eigenvalues));
          },
          kRuns);
      SCOPED_TRACE(testing::Message() << power << (indefinite ? " indefinite" : ""));
      EXPECT_GE(c.inside_interval, 0.93 * kRuns);
      EXPECT_LE(c.inside_interval, 0.97 * kRuns);
      EXPECT_GE(c.within_three_errors, least_count(kRuns, power < 1.5 ? 0.99 : 0.98));
    }
  }
}

TEST(Probes, AreReproducibleAndOfTheirKind) {
  const torch::TensorOptions f32 = torch::kFloat32;
  const torch::Tensor r = draw_probes(ProbeKind::kRademacher, 3, 1000, f32, make_generator(7));
  EXPECT_TRUE(r.abs().eq(1).all().item<bool>());
  EXPECT_LT(std::abs(r.mean().item<double>()), 4 / std::sqrt(3000.0));
  EXPECT_TRUE(r.equal(draw_probes(ProbeKind::kRademacher, 3, 1000, f32, make_generator(7))));
  EXPECT_FALSE(r.equal(draw_probes(ProbeKind::kRademacher, 3, 1000, f32, make_generator(8))));
  const torch::Tensor n = draw_probes(ProbeKind::kNormal, 3, 1000, f32, make_generator(7));
  EXPECT_LT(std::abs(n.square().mean().item<double>() - 1), 4 * std::sqrt(2.0 / 3000));
}

TEST(Probes, LeaveTheGlobalSeedAlone) {
  torch::manual_seed(5);
  const torch::Tensor expected = torch::randn({4});
  torch::manual_seed(5);
  draw_probes(ProbeKind::kNormal, 3, 10, torch::kFloat64, make_generator(7));
  EXPECT_TRUE(torch::randn({4}).equal(expected));
}

}  // namespace
}  // namespace curvq
