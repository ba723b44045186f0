#include "curvq/curvature/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coverage.h"
#include "curvq/core/error.h"
#include "golden_matrix.h"

namespace curvq {
namespace {

// Two uneven segments of an operator of dimension n.
std::vector<Segment> two_segments(int64_t n) { return {{"a", 0, n / 3}, {"b", n / 3, n - n / 3}}; }

double segment_trace(const torch::Tensor& m, const Segment& s) {
  return m.diagonal().narrow(0, s.offset, s.size).sum().item<double>();
}

class TraceOfNet : public testing::TestWithParam<const char*> {
 protected:
  TraceOfNet()
      : matrix_(golden_matrix(golden_file(GetParam()), "hessian_triu")),
        op_(matrix_, two_segments(matrix_.size(0))),
        trace_(matrix_.trace().item<double>()) {}
  torch::Tensor matrix_;
  DenseOperator op_;
  double trace_;
};

TEST_P(TraceOfNet, GoldenTraceAndNorm) {
  std::ifstream file(golden_path(GetParam(), "golden.json"));
  const nlohmann::json golden = nlohmann::json::parse(file)["matrices"]["hessian"];
  EXPECT_NEAR(trace_, golden["trace"].get<double>(), 1e-9 * std::abs(trace_));
  TraceOptions options;
  options.probes = 4000;
  const TraceResult r = hutchinson_trace(op_, options, make_generator(1));
  // The error of one probe is known: sqrt(2 (||H||_F^2 - sum H_ii^2)) for entries +-1.
  const double sigma = golden["hutchinson_std_one_probe_rademacher"];
  EXPECT_NEAR(r.trace.value, trace_, 4 * sigma / std::sqrt(4000.0));
  EXPECT_NEAR(r.trace.standard_error, sigma / std::sqrt(4000.0), 0.15 * r.trace.standard_error);
  EXPECT_NEAR(r.frobenius.value, golden["fro"].get<double>(), 4 * r.frobenius.standard_error);
  EXPECT_LT(r.frobenius.standard_error, 0.05 * r.frobenius.value);
  EXPECT_EQ(r.samples.size(0), 4000);
  EXPECT_NEAR(r.samples.mean().item<double>(), r.trace.value, 1e-12 * std::abs(trace_));
  EXPECT_EQ(r.products, 4000);
  EXPECT_TRUE(r.converged);
  options.probe = ProbeKind::kNormal;
  const TraceResult g = hutchinson_trace(op_, options, make_generator(2));
  const double normal = golden["hutchinson_std_one_probe_gaussian"];
  EXPECT_NEAR(g.trace.value, trace_, 4 * normal / std::sqrt(4000.0));
  EXPECT_NEAR(g.trace.standard_error, normal / std::sqrt(4000.0), 0.15 * g.trace.standard_error);
}

TEST_P(TraceOfNet, QuadraticFormsAreThoseOfTheGoldenProbes) {
  std::ifstream file(golden_path(GetParam(), "golden.json"));
  const nlohmann::json golden = nlohmann::json::parse(file)["matrices"]["hessian"];
  const SafetensorsFile data(golden_path(GetParam(), "data.safetensors"));
  const torch::Tensor z = golden_tensor(data, "probes");
  const torch::Tensor forms = (z * op_.apply(z)).sum(1);
  for (int i = 0; i < 4; ++i) {
    const double expected = golden["probe_quadratic_forms"][i];
    EXPECT_NEAR(forms[i].item<double>(), expected, 1e-9 * std::abs(expected));
  }
}

void expect_calibrated(const Coverage& c) {
  EXPECT_GE(c.within_three_errors, least_count(c.runs, 0.99));
  EXPECT_GE(c.inside_interval, 0.93 * c.runs);
  EXPECT_LE(c.inside_interval, 0.97 * c.runs);
}

TEST_P(TraceOfNet, HutchinsonErrorBarsCover) {
  for (const ProbeKind probe : {ProbeKind::kRademacher, ProbeKind::kNormal}) {
    for (const int64_t deflate : {0, 4}) {
      TraceOptions options;
      options.probe = probe;
      options.deflate = deflate;
      SCOPED_TRACE(testing::Message() << (probe == ProbeKind::kNormal) << " " << deflate);
      expect_calibrated(coverage(trace_, [&](uint64_t seed) {
        return hutchinson_trace(op_, options, make_generator(seed)).trace;
      }));
    }
  }
}

TEST_P(TraceOfNet, SegmentErrorBarsCover) {
  const Segment s = op_.segments()[1];
  const double truth = segment_trace(matrix_, s);
  for (const int64_t deflate : {0, 4}) {
    TraceOptions options;
    options.deflate = deflate;
    expect_calibrated(coverage(truth, [&](uint64_t seed) {
      return hutchinson_trace(op_, options, make_generator(seed)).segments[1].trace;
    }));
  }
  expect_calibrated(coverage(truth, [&](uint64_t seed) {
    return segment_traces(op_, {s}, {}, make_generator(seed)).segments[0].trace;
  }));
  // The total over blocks: degrees of freedom are added up, so that it may cover more.
  const Coverage total = coverage(trace_, [&](uint64_t seed) {
    return segment_traces(op_, {}, {}, make_generator(seed)).trace;
  });
  EXPECT_GE(total.within_three_errors, least_count(total.runs, 0.99));
  EXPECT_GE(total.inside_interval, least_count(total.runs, 0.95));
}

TEST_P(TraceOfNet, NormsOfSegmentsAreThoseOfTheirRowsOrBlocks) {
  for (const int64_t deflate : {0, 4}) {
    TraceOptions options;
    options.probes = 2000;
    options.deflate = deflate;
    const TraceResult shared = hutchinson_trace(op_, options, make_generator(5));
    const TraceResult own = segment_traces(op_, {}, options, make_generator(5));
    const double whole = matrix_.norm().item<double>();
    EXPECT_NEAR(shared.frobenius.value, whole, 4 * shared.frobenius.standard_error);
    for (int b = 0; b < 2; ++b) {
      const Segment& s = shared.segments[b].segment;
      const torch::Tensor rows = matrix_.narrow(0, s.offset, s.size);
      const Estimate& of_rows = shared.segments[b].frobenius;
      const Estimate& of_block = own.segments[b].frobenius;
      EXPECT_NEAR(of_rows.value, rows.norm().item<double>(), 4 * of_rows.standard_error);
      EXPECT_NEAR(of_block.value, rows.narrow(1, s.offset, s.size).norm().item<double>(),
                  4 * of_block.standard_error);
      EXPECT_LT(of_rows.standard_error, 0.1 * of_rows.value);
    }
  }
}

TEST_P(TraceOfNet, ProbesOfItsOwnMakeASegmentMoreCertain) {
  const TraceResult shared = hutchinson_trace(op_, {.probes = 1000}, make_generator(3));
  const TraceResult own = segment_traces(op_, {}, {.probes = 1000}, make_generator(3));
  EXPECT_EQ(own.products, 2 * shared.products);
  for (int i = 0; i < 2; ++i) {
    EXPECT_LT(own.segments[i].trace.standard_error, shared.segments[i].trace.standard_error);
    EXPECT_NEAR(own.segments[i].trace.value, segment_trace(matrix_, own.segments[i].segment),
                4 * own.segments[i].trace.standard_error);
  }
}

TEST_P(TraceOfNet, HeuristicErrorBarsCoverNoLess) {
  const auto never_less = [](const Coverage& c) {
    EXPECT_GE(c.within_three_errors, least_count(c.runs, 0.99));
    EXPECT_GE(c.inside_interval, least_count(c.runs, 0.95));
  };
  never_less(coverage(trace_, [&](uint64_t seed) {
    return hutch_plus_plus_trace(op_, 30, ProbeKind::kRademacher, make_generator(seed)).trace;
  }));
  never_less(
      coverage(trace_, [&](uint64_t seed) { return xtrace(op_, 30, make_generator(seed)).trace; }));
}

// Slow decay and one sign are what make the samples of XTrace vary together most.
TEST(Trace, XTraceErrorBarsCoverOtherSpectra) {
  for (const double power : {0.5, 1.0, 3.0}) {
    const torch::Tensor q =
        std::get<0>(torch::linalg_qr(torch::randn({60, 60}, make_generator(7), torch::kFloat64)));
    const torch::Tensor eigenvalues = torch::arange(1, 61, torch::kFloat64).pow(-power);
    DenseOperator op((q * eigenvalues).matmul(q.t()));
    const Coverage c = coverage(
        eigenvalues.sum().item<double>(),
        [&](uint64_t seed) { return xtrace(op, 30, make_generator(seed)).trace; }, 300);
    EXPECT_GE(c.within_three_errors, least_count(c.runs, 0.99)) << power;
    EXPECT_GE(c.inside_interval, least_count(c.runs, 0.95)) << power;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TraceOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Trace, ANegativeTraceStopsNoEarlier) {
  const torch::Tensor h = golden_matrix(golden_file("mlp_tanh_ce"), "hessian_triu");
  DenseOperator positive(h), negative(-h);
  const TraceOptions options{.probes = 10, .tolerance = 0.05, .max_probes = 5000};
  const TraceResult p = hutchinson_trace(positive, options, make_generator(1));
  const TraceResult n = hutchinson_trace(negative, options, make_generator(1));
  EXPECT_EQ(p.trace.samples, n.trace.samples);
  EXPECT_GT(p.trace.samples, 50);
  EXPECT_DOUBLE_EQ(p.trace.value, -n.trace.value);
  EXPECT_TRUE(p.converged && n.converged);
  EXPECT_LE(n.trace.standard_error, 0.05 * std::abs(n.trace.value));
}

TEST(Trace, SaysWhenTheToleranceIsNotReached) {
  const torch::Tensor h = golden_matrix(golden_file("mlp_tanh_ce"), "hessian_triu");
  DenseOperator op(h);
  const TraceResult r =
      hutchinson_trace(op, {.tolerance = 1e-6, .max_probes = 40}, make_generator(1));
  EXPECT_FALSE(r.converged);
  EXPECT_EQ(r.trace.samples, 40);
  const TraceResult s = segment_traces(op, two_segments(op.dimension()),
                                       {.tolerance = 1e-6, .max_probes = 40}, make_generator(1));
  EXPECT_FALSE(s.converged);
  EXPECT_EQ(s.segments[0].trace.samples, 40);
}

TEST(Trace, SegmentsStopWhenTheirOwnToleranceIsReached) {
  // A diagonal block has no variance with entries +-1, the other has.
  torch::Tensor m = torch::zeros({40, 40}, torch::kFloat64);
  m.narrow(0, 0, 20).narrow(1, 0, 20).fill_diagonal_(2.0);
  m.narrow(0, 20, 20).narrow(1, 20, 20).fill_(1.0);
  DenseOperator op(m, {{"diagonal", 0, 20}, {"rank one", 20, 20}});
  const TraceResult r =
      segment_traces(op, {}, {.tolerance = 0.05, .max_probes = 3000}, make_generator(1));
  EXPECT_TRUE(r.converged);
  EXPECT_EQ(r.segments[0].trace.samples, 30);
  EXPECT_NEAR(r.segments[0].trace.value, 40, 1e-12);
  EXPECT_GT(r.segments[1].trace.samples, 100);
}

TEST(Trace, DeflationIsExactForARankOneMatrix) {
  torch::Tensor u = torch::arange(1, 31, torch::kFloat64);
  const torch::Tensor m = u.outer(u);
  DenseOperator op(m, two_segments(30));
  const TraceResult r = hutchinson_trace(op, {.probes = 2, .deflate = 4}, make_generator(1));
  EXPECT_NEAR(r.trace.value, m.trace().item<double>(), 1e-12 * r.trace.value);
  EXPECT_LT(r.trace.standard_error, 1e-12 * r.trace.value);
  EXPECT_EQ(r.products, 2 + 2);  // the start and the one eigenvector, then the probes
  for (const SegmentTrace& s : r.segments)
    EXPECT_NEAR(s.trace.value, segment_trace(m, s.segment), 1e-12 * r.trace.value);
}

TEST(Trace, AMatrixOfLowRankIsExactInXTraceAndHutchPlusPlus) {
  const torch::Tensor b = torch::randn({60, 5}, make_generator(9), torch::kFloat64);
  const torch::Tensor m = b.matmul(b.t());
  DenseOperator op(m);
  const double trace = m.trace().item<double>();
  const TraceResult x = xtrace(op, 20, make_generator(1));
  EXPECT_NEAR(x.trace.value, trace, 1e-12 * trace);
  EXPECT_GT(x.trace.standard_error, 0);
  EXPECT_LT(x.trace.standard_error, 1e-12 * trace);
  const TraceResult h = hutch_plus_plus_trace(op, 30, ProbeKind::kNormal, make_generator(1));
  EXPECT_NEAR(h.trace.value, trace, 1e-12 * trace);
}

TEST(Trace, MoreProductsThanDimensionsAreExact) {
  torch::Tensor m = torch::randn({7, 7}, make_generator(4), torch::kFloat64);
  m = m + m.t();
  DenseOperator op(m);
  EXPECT_NEAR(xtrace(op, 40, make_generator(1)).trace.value, m.trace().item<double>(), 1e-12);
  EXPECT_NEAR(hutch_plus_plus_trace(op, 40, ProbeKind::kNormal, make_generator(1)).trace.value,
              m.trace().item<double>(), 1e-12);
}

TEST(Trace, DecayingSpectraFavourXTrace) {
  const torch::Tensor d = torch::pow(0.7, torch::arange(100, torch::kFloat64));
  DenseOperator op(torch::diag(d) + 1e-3 * torch::ones({100, 100}, torch::kFloat64));
  const double h =
      hutchinson_trace(op, {.probe = ProbeKind::kNormal}, make_generator(1)).trace.standard_error;
  EXPECT_LT(xtrace(op, 30, make_generator(1)).trace.standard_error, 0.1 * h);
}

TEST(Trace, Float32WorksToItsRounding) {
  const torch::Tensor h = golden_matrix(golden_file("mlp_tanh_ce"), "hessian_triu");
  DenseOperator wide(h), narrow(h.to(torch::kFloat32));
  const Estimate a = hutchinson_trace(wide, {}, make_generator(1)).trace;
  const Estimate b = hutchinson_trace(narrow, {}, make_generator(1)).trace;
  EXPECT_NEAR(a.value, b.value, 1e-5 * std::abs(a.value));  // the same probes
  EXPECT_NE(a.value, b.value);
}

TEST(Trace, BadOptionsNameFieldAndValue) {
  DenseOperator op(torch::eye(3, torch::kFloat64));
  const torch::Generator g = make_generator(1);
  EXPECT_THROW(hutchinson_trace(op, {.probes = 1}, g), UsageError);
  EXPECT_THROW(hutchinson_trace(op, {.tolerance = -1}, g), UsageError);
  EXPECT_THROW(hutchinson_trace(op, {.deflate = -1}, g), UsageError);
  EXPECT_THROW(segment_traces(op, {{"x", 2, 5}}, {}, g), UsageError);
  EXPECT_THROW(hutch_plus_plus_trace(op, 5, ProbeKind::kNormal, g), UsageError);
  EXPECT_THROW(xtrace(op, 5, g), UsageError);
}

}  // namespace
}  // namespace curvq
