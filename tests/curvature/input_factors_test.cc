#include "curvq/curvature/input_factors.h"

#include <gtest/gtest.h>

#include <map>

#include "curvature/golden.h"
#include "curvq/core/error.h"
#include "curvq/curvature/statistics.h"

namespace curvq {
namespace {

using namespace testing;

std::map<std::string, torch::Tensor> factors_of(const DecoderModel& model, const torch::Tensor& ids,
                                                torch::Tensor* stream = nullptr) {
  std::map<std::string, torch::Tensor> factors;
  const torch::Tensor out = input_factors(model, ids, [&](const InputFactor& factor) {
    for (const std::string& layer : factor.layers) factors[layer] = factor.a;
  });
  if (stream != nullptr) *stream = out;
  return factors;
}

TEST(InputFactors, AreTheGoldenOnes) {
  const torch::Tensor ids = golden_data("llama_tiny_ce").inputs;
  const Golden golden("llama_tiny_ce");
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    const DecoderModel model(golden_directory("llama_tiny_ce"), Engine::kDequantized, dtype);
    torch::Tensor stream;
    const auto factors = factors_of(model, ids, &stream);
    EXPECT_EQ(factors.size(), 7u);
    const double tolerance = dtype == torch::kFloat64 ? 1e-10 : 2e-5;
    for (const auto& [layer, a] : factors)
      EXPECT_LT(relative_error(a, golden.tensor("kfac." + layer + ".A_expand")), tolerance)
          << layer;
    EXPECT_LT(relative_error(stream, model.hidden_states(ids)), tolerance);
  }
}

// More tokens than go through a block at once.
TEST(InputFactors, AddUpOverChunks) {
  const DecoderModel model(std::string(CURVQ_TEST_DATA) + "/models/stories260K");
  const torch::Tensor ids = torch::randint(0, 512, {5, 512}, make_generator(1), torch::kInt64);
  const auto all = factors_of(model, ids), first = factors_of(model, ids.narrow(0, 0, 2)),
             rest = factors_of(model, ids.narrow(0, 2, 3));
  for (const auto& [layer, a] : all)
    EXPECT_LT(relative_error((2 * first.at(layer) + 3 * rest.at(layer)) / 5, a), 1e-5) << layer;
}

TEST(InputFactors, BadIdsAreNamed) {
  const DecoderModel model(std::string(CURVQ_TEST_DATA) + "/models/stories260K");
  EXPECT_THROW(factors_of(model, torch::zeros({3}, torch::kInt64)), UsageError);
  EXPECT_THROW(factors_of(model, torch::zeros({0, 3}, torch::kInt64)), UsageError);
}

TEST(InputFactors, WorkIsThatOfTheSizes) {
  const DecoderModel model(std::string(CURVQ_TEST_DATA) + "/models/stories260K");
  const InputFactorWork work = input_factor_work(model.config(), 256);
  EXPECT_EQ(work.factors, 5 * (3 * 64 * 64 + 172 * 172));
  EXPECT_EQ(work.forward, 5 * 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 172 + 2 * 64 * 256));
  EXPECT_EQ(work.head, 2 * 64 * 512);
}

}  // namespace
}  // namespace curvq
