// Hessians and output factors that other programs stumble over, each through every way of rounding
// and pruning. What should happen is in the rows of the tables below.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "curvq/compress/prune.h"
#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/io/safetensors.h"
#include "prune_testing.h"

namespace curvq {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// o_proj of a real model's last block (tests/data/layers).
struct Layer {
  RowMatrix weight, hessian;

  Layer() {
    const std::string data = std::string(CURVQ_TEST_DATA) + "/layers/";
    const SafetensorsFile weights(data + "weights.safetensors"), stats(data + "stats.safetensors");
    const auto matrix = [](const TensorView& tensor) {
      const std::vector<float> values = tensor.to_f32();
      return RowMatrix(
          Eigen::Map<const RowMatrix>(values.data(), tensor.shape[0], tensor.shape[1]));
    };
    weight = matrix(weights.at("stories.L4.o_proj.weight"));
    hessian = matrix(stats.at("stories.L4.o_proj.hessian"));
  }

  int inputs() const { return static_cast<int>(hessian.rows()); }
  // The Hessian of so many tokens of a normal distribution that has this one.
  RowMatrix sampled(int tokens, unsigned seed) const {
    const RowMatrix root = hessian.llt().matrixL();
    const RowMatrix x = random_matrix(tokens, inputs(), seed) * root.transpose();
    return x.transpose() * x / tokens;
  }
  RowMatrix without(std::initializer_list<int> dead) const {
    RowMatrix h = hessian;
    for (const int j : dead) {
      h.row(j).setZero();
      h.col(j).setZero();
    }
    return h;
  }
};

const Layer& layer() {
  static const Layer of_file;
  return of_file;
}

double quadratic(const RowMatrix& d, const RowMatrix& h) {
  return (d.cast<double>() * h.cast<double>()).cwiseProduct(d.cast<double>()).sum();
}

struct Way {
  std::string name;
  bool search = false;
  int sweeps = 0;
  bool two_sided = false;
};

std::vector<Way> ways() {
  return {{"gptq"}, {"scale search", true}, {"sweeps", true, 2}, {"two-sided", true, 2, true}};
}

struct Rounded {
  RowMatrix weight;
  LayerResult result;
  std::string error;
};

Rounded rounded(const Scheme& scheme, const Way& way, const RowMatrix& h, const RowMatrix& g) {
  const RowMatrix& w = layer().weight;
  LayerProblem problem;
  problem.name = "layer";
  problem.weight = w.data();
  problem.rows = w.rows();
  problem.cols = w.cols();
  problem.hessian = h.data();
  problem.output_factor = way.two_sided ? g.data() : nullptr;
  problem.scheme = scheme;
  problem.tensor_amax = max_abs(w.data(), w.size());
  QuantizeOptions options;
  if (way.name == "rtn") options.method = Method::kRtn;
  options.gptq.search_scales = options.refine.search_scales = way.search;
  options.refine.sweeps = way.sweeps;
  Rounded out;
  try {
    const QuantizedMatrix matrix = quantize_layer(problem, options, out.result);
    out.weight.resize(w.rows(), w.cols());
    dequantize(matrix, out.weight.data());
  } catch (const NumericalError& error) {
    out.error = error.what();
  }
  return out;
}

RowMatrix nearest(const Scheme& scheme) {
  return rounded(scheme, {"rtn"}, layer().hessian, {}).weight;
}

void for_each_way(const std::function<void(const Scheme&, const Way&)>& check) {
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                               Scheme::int4(32, false), Scheme::int8(32), Scheme::fp8()}) {
    for (const Way& way : ways()) {
      SCOPED_TRACE(scheme.describe() + ", " + way.name);
      check(scheme, way);
    }
  }
}

RowMatrix some_factor() { return random_hessian(static_cast<int>(layer().weight.rows()), 300, 5); }

// What the error matrix loses under `h`, over that of round to nearest.
double ratio(const Scheme& scheme, const Rounded& of, const RowMatrix& h) {
  const RowMatrix& w = layer().weight;
  return quadratic(w - of.weight, h) / quadratic(w - nearest(scheme), h);
}

// An expert that saw no token.
TEST(AwkwardHessian, AllZeroIsRoundedToNearestAndSaysSo) {
  const RowMatrix zero = RowMatrix::Zero(layer().inputs(), layer().inputs());
  for_each_way([&](const Scheme& scheme, const Way& way) {
    testing::internal::CaptureStderr();
    const Rounded out = rounded(scheme, way, zero, some_factor());
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("layer: no input was ever non-zero; rounded to nearest"));
    EXPECT_EQ(out.weight, nearest(scheme));
    EXPECT_TRUE(out.result.rounded_to_nearest);
    EXPECT_EQ(out.result.dead_inputs, layer().inputs());
  });
}

// 6 % of the inputs are always zero and H is small: the damping must not be made of the former.
TEST(AwkwardHessian, DeadInputsDoNotEnterTheDamping) {
  const RowMatrix h = layer().without({3, 17, 40, 63});
  for_each_way([&](const Scheme& scheme, const Way& way) {
    const Rounded out = rounded(scheme, way, h * 0x1p-30f, some_factor());
    ASSERT_EQ(out.error, "");
    EXPECT_EQ(out.result.dead_inputs, 4);
    EXPECT_EQ(out.result.damping, 0.01);
    EXPECT_EQ(out.result.note, "");
    if (!way.two_sided) {
      EXPECT_LT(ratio(scheme, out, h), scheme.bits == 8 ? 0.9 : 0.75);
    }
    // Scaled by a power of two it is the same problem.
    EXPECT_EQ(out.weight, rounded(scheme, way, h, some_factor()).weight);
    for (const int j : {3, 17, 40, 63}) {
      if (!way.search) {
        EXPECT_EQ(out.weight.col(j), nearest(scheme).col(j));
        continue;
      }
      // On other scales, the nearest values still: no neighbour of a code is closer.
      EXPECT_LE((out.weight.col(j) - layer().weight.col(j)).norm(),
                1.5f * (nearest(scheme).col(j) - layer().weight.col(j)).norm());
    }
  });
}

// Fewer tokens than inputs: with the damping that suits many, GPTQ fits what the few happen to say,
// and does worse than round to nearest on all others.
TEST(AwkwardHessian, RankDeficientStaysBetterThanRoundToNearestOnOtherTokens) {
  for_each_way([&](const Scheme& scheme, const Way& way) {
    for (const int tokens : {16, 32}) {
      double logs = 0;
      constexpr int kSeeds = 4;
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        const RowMatrix few = layer().sampled(tokens, 10 + seed);
        const Rounded out = rounded(scheme, way, few, RowMatrix::Identity(64, 64));
        ASSERT_EQ(out.error, "");
        EXPECT_THAT(out.result.note,
                    HasSubstr("the hessian has rank " + std::to_string(tokens) + " for 64 inputs"));
        EXPECT_GT(out.result.damping, 0.01);
        EXPECT_LE(out.result.damping, 0.9);
        logs += std::log(ratio(scheme, out, layer().hessian)) / kSeeds;
      }
      EXPECT_LT(std::exp(logs), 0.9) << tokens << " tokens";
    }
  });
}

// Two inputs that are always equal leave H singular, but say nothing against it.
TEST(AwkwardHessian, EqualInputsAreNoReasonForMoreDamping) {
  RowMatrix h = layer().hessian;
  h.row(9) = h.row(4);
  h.col(9) = h.col(4);
  for_each_way([&](const Scheme& scheme, const Way& way) {
    const Rounded out = rounded(scheme, way, h, some_factor());
    ASSERT_EQ(out.error, "");
    EXPECT_EQ(out.result.damping, 0.01);
    if (!way.two_sided) {
      EXPECT_LT(ratio(scheme, out, h), 0.9);
    }
  });
}

// Indefinite as after storing it in too few bits, and far more: bounded damping makes it definite.
TEST(AwkwardHessian, IndefiniteIsDampedWithinBounds) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(layer().hessian.cast<double>());
  const double mean = layer().hessian.diagonal().cast<double>().mean();
  for (const double below : {0.02, 0.5}) {
    Eigen::VectorXd values = eigen.eigenvalues();
    values.head(6).setConstant(-below * mean);
    const RowMatrix h =
        (eigen.eigenvectors() * values.asDiagonal() * eigen.eigenvectors().transpose())
            .cast<float>();
    for_each_way([&](const Scheme& scheme, const Way& way) {
      const Rounded out = rounded(scheme, way, h, some_factor());
      ASSERT_EQ(out.error, "");
      EXPECT_THAT(out.result.note, HasSubstr("the hessian is singular at damping"));
      EXPECT_THAT(out.result.note, HasSubstr("(column "));
      EXPECT_GT(out.result.damping, below);
      EXPECT_LE(out.result.damping, 10);
      // Sweeps that trusted the negative directions would run away from W.
      if (!way.two_sided) {
        EXPECT_LT(ratio(scheme, out, layer().hessian), 1);
      }
    });
  }
}

struct Bad {
  std::string name;
  std::function<void(RowMatrix&)> spoil;
  std::string says;
};

TEST(AwkwardHessian, WhatNoDampingHealsIsAnErrorThatNamesIt) {
  const std::vector<Bad> rows = {
      {"infinite", [](RowMatrix& h) { h(5, 5) = kInfinity; },
       "layer: the hessian is not finite in 1 of 4096 entries, the first at row 5, column 5"},
      {"NaN", [](RowMatrix& h) { h(2, 7) = h(7, 2) = kNan; },
       "layer: the hessian is not finite in 2 of 4096 entries, the first at row 2, column 7"},
      {"negative", [](RowMatrix& h) { h = -h; },
       "layer: the hessian is finite but not positive definite (column "}};
  for (const Bad& bad : rows) {
    SCOPED_TRACE(bad.name);
    RowMatrix h = layer().hessian;
    bad.spoil(h);
    for_each_way([&](const Scheme& scheme, const Way& way) {
      EXPECT_THAT(rounded(scheme, way, h, some_factor()).error, HasSubstr(bad.says));
    });
  }
}

TEST(AwkwardFactor, WhatIsNoMeanOfSquaresIsAnErrorThatNamesIt) {
  const std::vector<Bad> rows = {
      {"NaN", [](RowMatrix& g) { g(4, 6) = kNan; },
       "layer: the output factor is nan at row 4, column 6"},
      {"infinite", [](RowMatrix& g) { g(4, 4) = kInfinity; },
       "layer: the output factor is inf at row 4, column 4"},
      {"negative diagonal", [](RowMatrix& g) { g(8, 8) = -1; },
       "layer: the output factor is -1 at row 8, column 8"},
      {"indefinite", [](RowMatrix& g) { g(1, 0) = g(0, 1) = 3 * g.diagonal().maxCoeff(); },
       "layer: the output factor is not positive semidefinite"}};
  for (const Bad& bad : rows) {
    SCOPED_TRACE(bad.name);
    RowMatrix g = some_factor();
    bad.spoil(g);
    for_each_way([&](const Scheme& scheme, const Way& way) {
      const std::string error = rounded(scheme, way, layer().hessian, g).error;
      EXPECT_THAT(error, way.two_sided ? HasSubstr(bad.says) : HasSubstr(""));
      EXPECT_EQ(error.empty(), !way.two_sided);
    });
  }
}

// Nothing depends on the outputs: there is nothing to gain by sweeps, GPTQ's rounding stays.
TEST(AwkwardFactor, ZeroLeavesWhatGptqFound) {
  const RowMatrix zero = RowMatrix::Zero(64, 64);
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::int4(32)}) {
    const Rounded swept = rounded(scheme, {"two-sided", true, 2, true}, layer().hessian, zero);
    EXPECT_EQ(swept.error, "");
    EXPECT_EQ(swept.weight, rounded(scheme, {"gptq", true}, layer().hessian, zero).weight);
  }
}

TEST(AwkwardFactor, RankDeficientStillLowersTheObjective) {
  const RowMatrix x = random_matrix(8, 64, 3), g = x.transpose() * x / 8;
  for_each_way([&](const Scheme& scheme, const Way& way) {
    if (!way.two_sided) return;
    const Rounded before = rounded(scheme, {"gptq", true}, layer().hessian, g);
    const Rounded out = rounded(scheme, way, layer().hessian, g);
    ASSERT_EQ(out.error, "");
    const auto f = [&](const Rounded& of) {
      const Eigen::MatrixXd d = (layer().weight - of.weight).cast<double>();
      return (g.cast<double>() * d * layer().hessian.cast<double>()).cwiseProduct(d).sum();
    };
    EXPECT_LT(f(out), 0.8 * f(before));
  });
}

constexpr PruneMethod kPruneMethods[] = {PruneMethod::kWanda, PruneMethod::kObd, PruneMethod::kObs};

void for_each_pruning(const std::function<void(const PruneOptions&)>& check) {
  for (const PruneMethod method : kPruneMethods) {
    for (const char* pattern : {"0.5", "2:4"}) {
      for (const int sweeps : {0, 2}) {
        SCOPED_TRACE(method_name(method) + " " + pattern + ", sweeps " + std::to_string(sweeps));
        check(options_of(method, pattern, sweeps));
      }
    }
  }
}

double pruning_error(const PruneResult& of, const RowMatrix& h) {
  return objective(layer().weight, of.matrix, h);
}

TEST(AwkwardHessian, PruningTakesThemToo) {
  const RowMatrix& w = layer().weight;
  const RowMatrix few = layer().sampled(16, 1);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(layer().hessian.cast<double>());
  Eigen::VectorXd values = eigen.eigenvalues();
  values.head(6).setConstant(-0.5 * layer().hessian.diagonal().cast<double>().mean());
  const RowMatrix indefinite =
      (eigen.eigenvectors() * values.asDiagonal() * eigen.eigenvectors().transpose()).cast<float>();
  const std::vector<std::pair<std::string, RowMatrix>> rows = {
      {"dead", layer().without({3, 17, 40, 63}) * 0x1p-30f},
      {"rank 16", few},
      {"zero", RowMatrix::Zero(64, 64)},
      {"indefinite", indefinite}};
  for (const auto& [name, h] : rows) {
    SCOPED_TRACE(name);
    for_each_pruning([&](const PruneOptions& options) {
      const PruneResult result = prune(problem_of(w, h), options);
      const PruneOptions by_size =
          options_of(PruneMethod::kMagnitude, options.pattern.structured() ? "2:4" : "0.5");
      const PruneResult magnitude = prune(problem_of(w, layer().hessian), by_size);
      const auto kept = std::count(result.matrix.mask.begin(), result.matrix.mask.end(), 1);
      EXPECT_EQ(kept, w.size() / 2);
      for (const float value : result.matrix.weight) ASSERT_TRUE(std::isfinite(value));
      EXPECT_EQ(result.all_dead, name == "zero");
      if (name == "zero") {
        EXPECT_EQ(result.matrix.mask, magnitude.matrix.mask);
      } else if (options.method == PruneMethod::kObs || options.sweeps > 0 || name == "dead") {
        const RowMatrix judge = name == "dead" ? h : layer().hessian;
        EXPECT_LT(pruning_error(result, judge), pruning_error(magnitude, judge));
      }
      const bool damped = options.method == PruneMethod::kObs || options.sweeps > 0;
      const std::string why = !damped                ? ""
                              : name == "rank 16"    ? "rank 16 for 64 inputs"
                              : name == "indefinite" ? "singular at damping"
                                                     : "";
      EXPECT_THAT(result.raised_because, HasSubstr(why));
      EXPECT_EQ(result.raised_because.empty(), why.empty());
    });
  }
}

}  // namespace
}  // namespace curvq
