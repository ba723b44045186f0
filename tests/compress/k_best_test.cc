#include "compress/k_best.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compress/saliency_order.h"
#include "curvq/compress/gptq.h"
#include "curvq/compress/refine.h"
#include "curvq/core/error.h"
#include "curvq/linalg/symmetric.h"
#include "prune_testing.h"

namespace curvq {
namespace {

using internal::ColumnValues;
using internal::KBest;
using internal::SaliencyOrder;

// The least (w - q) H (w - q)^T over all q of these values.
double least_of_all(const RowMatrix& w, const RowMatrix& h, const std::vector<float>& values) {
  const auto n = static_cast<int>(h.rows()), count = static_cast<int>(values.size());
  double best = HUGE_VAL;
  Eigen::RowVectorXd d(n);
  for (int64_t code = 0; code < std::llround(std::pow(count, n)); ++code) {
    int64_t rest = code;
    for (int j = 0; j < n; ++j, rest /= count)
      d[j] = static_cast<double>(w(0, j)) - values[rest % count];
    best = std::min(best, (d * h.cast<double>()).dot(d));
  }
  return best;
}

struct Found {
  double loss = 0, true_loss = 0;
};

Found k_best(const RowMatrix& w, const RowMatrix& h, const std::vector<float>& values, int64_t k) {
  const int64_t n = h.rows();
  const InverseCholesky inverse = inverse_cholesky(h.data(), n, 0);
  EXPECT_LT(inverse.failed_column, 0);
  if (inverse.failed_column >= 0) return {};
  KBest search(inverse.upper.data(), n, n, k);
  const ColumnValues of_column(n, values);
  Found found;
  found.loss = search.search(w.data(), 1, of_column);
  Eigen::RowVectorXd d(n);
  for (int64_t j = 0; j < n; ++j) d[j] = static_cast<double>(w(0, j)) - values[search.choices()[j]];
  found.true_loss = (d * h.cast<double>()).dot(d);
  return found;
}

TEST(KBest, FindsTheBestOfAllWithEnoughCandidates) {
  const std::vector<float> values = {-1, 0, 1, 2};  // as many as each candidate is continued by
  int nearest_plane = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    const RowMatrix w = random_matrix(1, 5, seed), h = random_hessian(5, 12, 100 + seed);
    const double best = least_of_all(w, h, values);
    const Found one = k_best(w, h, values, 1), many = k_best(w, h, values, 4096);
    EXPECT_NEAR(many.true_loss / best, 1, 1e-6) << seed;
    EXPECT_NEAR(many.loss / many.true_loss, 1, 1e-2);
    EXPECT_GE(one.true_loss, best * (1 - 1e-9));
    nearest_plane += one.true_loss <= best * (1 + 1e-6);
  }
  EXPECT_LT(nearest_plane, 30);  // the nearest plane alone does not
}

// Columns beyond one block of lazy updates.
TEST(KBest, LossIsThatOfItsChoicesAndFallsWithMoreCandidates) {
  const std::vector<float> values = {-3, -1, 0, 1, 3};
  double logs[4] = {};
  const int64_t candidates[] = {1, 4, 16, 64};
  for (unsigned seed = 0; seed < 6; ++seed) {
    const RowMatrix w = random_matrix(1, 100, seed);
    RowMatrix h = random_hessian(100, 400, 50 + seed);  // as good as singular in float32
    h.diagonal().array() += 0.01f * h.diagonal().mean();
    for (int i = 0; i < 4; ++i) {
      const Found found = k_best(w, h, values, candidates[i]);
      EXPECT_NEAR(found.loss / found.true_loss, 1, 1e-2);
      logs[i] += std::log(found.true_loss);
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_LT(logs[i + 1], logs[i]);
}

double objective_of(const RowMatrix& w, const QuantizedMatrix& matrix, const RowMatrix& h) {
  RowMatrix q(w.rows(), w.cols());
  dequantize(matrix, q.data());
  const Eigen::MatrixXd d = (w - q).cast<double>();
  return (d * h.cast<double>()).cwiseProduct(d).sum();
}

ScaleGrid grid_of(const RowMatrix& w, const Scheme& scheme) {
  return make_scale_grid(w.data(), w.rows(), w.cols(), scheme, max_abs(w.data(), w.size()));
}

TEST(GptqCandidates, LowerTheObjectiveForEveryScheme) {
  const RowMatrix w = random_matrix(40, 96, 1), h = random_hessian(96, 500, 2);
  RowMatrix damped = h;
  damped.diagonal().array() += 0.01f * h.diagonal().mean();
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                               Scheme::int4(32, false), Scheme::int8(32), Scheme::fp8()}) {
    SCOPED_TRACE(scheme.describe());
    double last = HUGE_VAL;
    for (const int64_t candidates : {1, 16}) {
      GptqOptions options;
      options.candidates = candidates;
      const GptqResult result = gptq(w.data(), h.data(), grid_of(w, scheme), options, "layer");
      const double f = objective_of(w, result.matrix, damped);
      EXPECT_NEAR(result.objective / f, 1, 1e-2);
      EXPECT_LT(f, 0.97 * last);
      last = f;
    }
  }
}

TEST(GptqCandidates, PrunedWeightsStayZero) {
  const RowMatrix w = random_matrix(20, 64, 5), h = random_hessian(64, 300, 6);
  std::vector<uint8_t> mask(20 * 64);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
  for (const RoundingOrder order : {RoundingOrder::kPlane, RoundingOrder::kSaliency}) {
    GptqOptions options;
    options.rounding_order = order;
    if (order == RoundingOrder::kPlane) options.candidates = 8;
    QuantizedMatrix matrix =
        gptq(w.data(), h.data(), grid_of(w, Scheme::nvfp4()), options, "layer", mask.data()).matrix;
    refine(w.data(), h.data(), nullptr, matrix, {.sweeps = 1, .candidates = 8}, mask.data());
    RowMatrix q(20, 64);
    dequantize(matrix, q.data());
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i]) continue;
      ASSERT_EQ(q.data()[i], 0.0f);
    }
  }
}

// Nothing that is not clipped is further from its plane than half of the widest step.
TEST(NearestPlaneBound, HoldsForGptqOnGridsThatClipNothing) {
  for (const Scheme& scheme : {Scheme::mxfp4(), Scheme::int8(32)}) {
    const RowMatrix w = random_matrix(20, 96, 3), h = random_hessian(96, 500, 4);
    ScaleGrid grid = grid_of(w, scheme);
    for (float& scale : grid.scales) scale *= 4;
    const GptqResult result = gptq(w.data(), h.data(), grid, {}, "layer");
    RowMatrix damped = h;
    damped.diagonal().array() += 0.01f * h.diagonal().mean();
    const double f = objective_of(w, result.matrix, damped);
    EXPECT_NEAR(result.objective / f, 1, 1e-2);
    EXPECT_LT(f, result.nearest_plane_bound);
    EXPECT_GT(f, 0.02 * result.nearest_plane_bound);
  }
}

// The paper's algorithm in float64, one row at a time, over all columns.
QuantizedMatrix brain_surgeon(const RowMatrix& w, const RowMatrix& h, const Scheme& scheme) {
  const auto n = static_cast<int>(w.cols());
  QuantizedMatrix matrix(grid_of(w, scheme));
  for (int r = 0; r < w.rows(); ++r) {
    Eigen::MatrixXd inverse = (h.cast<double>() + 0.01 * h.cast<double>().diagonal().mean() *
                                                      Eigen::MatrixXd::Identity(n, n))
                                  .inverse();
    Eigen::RowVectorXd left = w.row(r).cast<double>();
    std::vector<int> open(n);
    std::iota(open.begin(), open.end(), 0);
    while (!open.empty()) {
      const auto rounded = [&](int j) {
        const float scale = matrix.grid.scale(r, scheme.group_of(j));
        const uint8_t code = encode(scheme, static_cast<float>(left[j]), scale, 0);
        matrix.set_code(r, j, code);
        return static_cast<double>(decode(scheme, code, scale, 0));
      };
      const auto saliency = [&](int j) {
        return std::pow(left[j] - rounded(j), 2) / (2 * inverse(j, j));
      };
      const auto next = std::min_element(open.begin(), open.end(),
                                         [&](int a, int b) { return saliency(a) < saliency(b); });
      const int j = *next;
      open.erase(next);
      const double share = (left[j] - rounded(j)) / inverse(j, j);
      for (const int k : open) left[k] -= share * inverse(j, k);
      const Eigen::VectorXd column = inverse.col(j);
      inverse -= column * column.transpose() / column[j];
    }
  }
  return matrix;
}

TEST(SaliencyOrder, EqualsOptimalBrainSurgeonInFloat64) {
  const RowMatrix w = random_matrix(12, 64, 7), h = random_hessian(64, 300, 8);
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::int4(32)}) {
    GptqOptions options;
    options.rounding_order = RoundingOrder::kSaliency;
    const GptqResult ours = gptq(w.data(), h.data(), grid_of(w, scheme), options, "layer");
    const QuantizedMatrix reference = brain_surgeon(w, h, scheme);
    int different = 0;
    for (int r = 0; r < 12; ++r) {
      for (int j = 0; j < 64; ++j) different += ours.matrix.code(r, j) != reference.code(r, j);
    }
    // A code on a tie, and what it moves.
    EXPECT_LE(different, 12 * 64 / 50) << scheme.describe();
    EXPECT_NEAR(objective_of(w, ours.matrix, h) / objective_of(w, reference, h), 1, 1e-3);
  }
}

TEST(SaliencyOrder, OrderOfOneColumnABlockIsGptq) {
  const RowMatrix w = random_matrix(30, 96, 9), h = random_hessian(96, 400, 10);
  GptqOptions options;
  options.block_size = 1;
  const GptqResult plane = gptq(w.data(), h.data(), grid_of(w, Scheme::mxfp4()), options, "layer");
  options.rounding_order = RoundingOrder::kSaliency;
  const GptqResult one = gptq(w.data(), h.data(), grid_of(w, Scheme::mxfp4()), options, "layer");
  EXPECT_EQ(one.matrix.codes, plane.matrix.codes);
}

TEST(OptimalBrainDamage, RoundsToNearestOnScalesThatTheDiagonalChose) {
  const RowMatrix w = random_matrix(30, 96, 11);
  const RowMatrix h = random_hessian(96, 400, 12), diagonal = h.diagonal().asDiagonal();
  GptqOptions options;
  options.diagonal = true;
  const ScaleGrid grid = grid_of(w, Scheme::nvfp4());
  EXPECT_EQ(gptq(w.data(), h.data(), grid, options, "layer").matrix.codes,
            quantize_rtn(w.data(), grid).codes);
  options.search_scales = true;
  const QuantizedMatrix found = gptq(w.data(), h.data(), grid, options, "layer").matrix;
  EXPECT_EQ(found.codes, quantize_rtn(w.data(), found.grid).codes);
  // No neighbouring scale of a group is better for sum H_jj dw^2 / 2.
  EXPECT_LT(objective_of(w, found, diagonal),
            0.95 * objective_of(w, quantize_rtn(w.data(), grid), diagonal));
}

TEST(GptqOptions, RejectsCandidatesOutOfRange) {
  GptqOptions options;
  options.candidates = 0;
  EXPECT_THROW(options.validate(), UsageError);
  options.candidates = 4097;
  EXPECT_THROW(options.validate(), UsageError);
  options.candidates = 16;
  options.rounding_order = RoundingOrder::kSaliency;
  EXPECT_THROW(options.validate(), UsageError);
}

}  // namespace
}  // namespace curvq
