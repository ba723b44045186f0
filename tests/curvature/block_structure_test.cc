#include "curvq/curvature/block_structure.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "coverage.h"
#include "curvq/core/error.h"
#include "golden_matrix.h"

namespace curvq {
namespace {

nlohmann::json parse(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// The parameter tensors of a net.
std::vector<Segment> parameters(const std::string& net) {
  std::vector<Segment> segments;
  const nlohmann::json description = parse(golden_path(net, "net.json"));
  for (const auto& p : description["params"])
    segments.push_back({p["name"], p["offset"], p["numel"]});
  return segments;
}

class BlocksOfNet : public testing::TestWithParam<const char*> {
 protected:
  BlocksOfNet()
      : op_(golden_matrix(golden_file(GetParam()), "hessian_triu"), parameters(GetParam())) {
    const auto rows =
        parse(golden_path(GetParam(), "golden.json"))["matrices"]["hessian"]["block_fro"]
            .get<std::vector<std::vector<double>>>();
    for (const auto& row : rows) truth_.push_back(torch::tensor(row, torch::kFloat64));
  }
  DenseOperator op_;
  std::vector<torch::Tensor> truth_;
};

TEST_P(BlocksOfNet, ExactNormsAreTheGoldenOnes) {
  const BlockNorms r = exact_block_norms(op_, {}, 10);
  EXPECT_TRUE(torch::allclose(r.norm, torch::stack(truth_), 1e-9, 1e-12));
  EXPECT_EQ(r.products, op_.dimension());
  // The whole and the ratio by hand.
  const double whole = op_.matrix().square().sum().item<double>();
  const double inside = torch::stack(truth_).diagonal().square().sum().item<double>();
  EXPECT_NEAR(r.off_diagonal_ratio().value, std::sqrt((whole - inside) / inside), 1e-9);
  EXPECT_EQ(r.off_diagonal_ratio().standard_error, 0);
}

TEST_P(BlocksOfNet, EstimatesCoverTheTruth) {
  const torch::Tensor truth = torch::stack(truth_);
  const double ratio = exact_block_norms(op_).off_diagonal_ratio().value;
  int64_t within = 0, ratio_within = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const BlockNorms r =
        estimated_block_norms(op_, {}, 30, ProbeKind::kRademacher, make_generator(seed));
    within += ((r.norm - truth).abs() <= 3 * r.standard_error + 1e-14).sum().item<int64_t>();
    const Estimate e = r.off_diagonal_ratio();
    ratio_within += std::abs(e.value - ratio) <= 3 * e.standard_error;
  }
  EXPECT_GE(within / (200.0 * truth.numel()), least_count(200, 0.99) / 200);
  EXPECT_GE(ratio_within, least_count(200, 0.99));
}

INSTANTIATE_TEST_SUITE_P(Golden, BlocksOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Blocks, BetweenOutputNeurons) {
  const std::vector<Segment> all = parameters("mlp_tanh_ce");
  const torch::Tensor h = golden_matrix(golden_file("mlp_tanh_ce"), "hessian_triu");
  DenseOperator op(h, all);
  const Segment& last = all[4];  // fc3.weight [4, 8]
  ASSERT_EQ(last.name, "fc3.weight");
  const std::vector<Segment> neurons = rows_as_segments(last, 4);
  ASSERT_EQ(neurons.size(), 4u);
  EXPECT_EQ(neurons[1].name, "fc3.weight[1]");
  const BlockNorms r = exact_block_norms(op, neurons);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const torch::Tensor block =
          h.narrow(0, last.offset + 8 * i, 8).narrow(1, last.offset + 8 * j, 8);
      EXPECT_NEAR(r.norm[i][j].item<double>(), block.norm().item<double>(), 1e-12);
    }
  }
  EXPECT_THROW(rows_as_segments(last, 5), UsageError);
}

TEST(Blocks, ABlockDiagonalOperatorHasRatioZero) {
  DenseOperator op(torch::eye(6, torch::kFloat64), {{"a", 0, 3}, {"b", 3, 3}});
  const BlockNorms r = exact_block_norms(op);
  EXPECT_EQ(r.off_diagonal_ratio().value, 0);
  DenseOperator zero(torch::zeros({6, 6}, torch::kFloat64), {{"a", 0, 3}, {"b", 3, 3}});
  EXPECT_TRUE(std::isnan(exact_block_norms(zero).off_diagonal_ratio().value));
}

TEST(Blocks, BadOptionsNameFieldAndValue) {
  DenseOperator op(torch::eye(6, torch::kFloat64));
  EXPECT_THROW(exact_block_norms(op, {{"x", 4, 3}}), UsageError);
  EXPECT_THROW(estimated_block_norms(op, {}, 1, ProbeKind::kNormal, make_generator(1)), UsageError);
}

}  // namespace
}  // namespace curvq
