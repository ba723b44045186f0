#include "curvq/nn/differentiable_decoder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "curvq/core/error.h"
#include "curvq/nn/checkpointed.h"
#include "curvq/nn/math_attention.h"

namespace curvq {
namespace {

const std::string kModels = std::string(CURVQ_TEST_DATA) + "/models/";

std::vector<torch::Tensor> values(const DifferentiableDecoder& decoder) {
  std::vector<torch::Tensor> out;
  for (const auto& [name, tensor] : decoder.parameters()) out.push_back(tensor);
  return out;
}

// Any smooth scalar of the logits.
torch::Tensor loss_of(const DifferentiableDecoder& decoder, const torch::Tensor& ids) {
  return torch::log_softmax(decoder.forward(ids), -1).select(-1, 3).square().mean();
}

TEST(DifferentiableDecoder, LogitsEqualThoseOfTheModelBlockByBlock) {
  for (const std::string name : {"llama_biases_sharded", "llama_gqa_tied", "llama_rope_llama3"}) {
    const DecoderModel model(kModels + name);
    const torch::Tensor ids =
        torch::arange(24, torch::kInt64).view({2, 12}).remainder(model.config().vocab_size);
    const torch::Tensor expected = model.logits(model.hidden_states(ids));
    const torch::Tensor single = DifferentiableDecoder(model, torch::kFloat32).forward(ids);
    const torch::Tensor twice = DifferentiableDecoder(model, torch::kFloat64).forward(ids);
    const double scale = expected.abs().max().item<double>();
    EXPECT_LT((single - expected).abs().max().item<double>(), 1e-5 * scale) << name;
    // float64 differs from float32 by roundings of 1e-7 over a few dozen operations.
    EXPECT_LT((twice - expected).abs().max().item<double>(), 1e-4 * scale) << name;
    EXPECT_EQ(twice.scalar_type(), torch::kFloat64);
  }
}

TEST(DifferentiableDecoder, TiedEmbeddingsAreOneParameter) {
  const DecoderModel model(kModels + "llama_gqa_tied");
  const DifferentiableDecoder decoder(model, torch::kFloat32);
  int64_t heads = 0;
  for (const auto& [name, tensor] : decoder.parameters()) heads += name == "lm_head.weight";
  EXPECT_EQ(heads, 0);
  EXPECT_EQ(decoder.parameters().size(), expected_tensors(model.config()).size());
}

TEST(DifferentiableDecoder, CheckpointingChangesNeitherGradientNorProduct) {
  const DecoderModel model(kModels + "llama_biases_sharded");
  const torch::Tensor ids = torch::arange(20, torch::kInt64).view({2, 10});
  std::vector<std::vector<torch::Tensor>> gradients, products;
  for (const bool checkpoint : {false, true}) {
    const DifferentiableDecoder decoder(model, torch::kFloat64, checkpoint);
    const auto leaves = values(decoder);
    std::vector<torch::Tensor> directions;
    for (const torch::Tensor& leaf : leaves) directions.push_back(torch::cos(leaf.detach() * 50));
    const auto g = torch::autograd::grad({loss_of(decoder, ids)}, leaves, {}, true, true);
    products.push_back(torch::autograd::grad(g, leaves, directions));
    gradients.emplace_back();
    for (const torch::Tensor& tensor : g) gradients.back().push_back(tensor.detach());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    // Sums of some thousand terms in another order, in float64.
    EXPECT_TRUE(torch::allclose(gradients[0][i], gradients[1][i], 1e-10, 1e-13)) << i;
    EXPECT_TRUE(torch::allclose(products[0][i], products[1][i], 1e-10, 1e-12)) << i;
  }
}

TEST(DifferentiableDecoder, CheckpointedGradientOfSomeParametersOnly) {
  const DecoderModel model(kModels + "llama_gqa_tied");
  const torch::Tensor ids = torch::arange(8, torch::kInt64).view({1, 8});
  std::vector<torch::Tensor> found;
  for (const bool checkpoint : {false, true}) {
    const DifferentiableDecoder decoder(model, torch::kFloat64, checkpoint);
    const auto leaves = values(decoder);
    const std::vector<torch::Tensor> chosen = {leaves[3]};
    const auto g = torch::autograd::grad({loss_of(decoder, ids)}, chosen, {}, true, true);
    found.push_back(torch::autograd::grad(g, chosen, {torch::ones_like(chosen[0])})[0]);
  }
  EXPECT_TRUE(torch::allclose(found[0], found[1], 1e-10, 1e-13));
  EXPECT_GT(found[0].norm().item<double>(), 0);
}

TEST(DifferentiableDecoder, RejectsIdsOutsideOfTheVocabulary) {
  const DecoderModel model(kModels + "llama_gqa_tied");
  const DifferentiableDecoder decoder(model, torch::kFloat32);
  EXPECT_THROW(decoder.forward(torch::full({1, 2}, model.config().vocab_size, torch::kInt64)),
               UsageError);
  EXPECT_THROW(decoder.forward(torch::full({1, 2}, -1, torch::kInt64)), UsageError);
}

TEST(Checkpointed, SecondDerivativeIsTheAnalyticOne) {
  // f = sum a^2 b^3: df/da = 2 a b^3, d2f/da2 v = 2 b^3 v, d2f/dadb v = 6 a b^2 v.
  const torch::Tensor a = torch::tensor({1.0, 2.0}, torch::kFloat64).requires_grad_();
  const torch::Tensor b = torch::tensor({3.0, -1.0}, torch::kFloat64).requires_grad_();
  const torch::Tensor y = checkpointed(
      [](const std::vector<torch::Tensor>& in) { return (in[0].square() * in[1].pow(3)).sum(); },
      {a, b});
  const auto g = torch::autograd::grad({y}, {a}, {}, true, true);
  EXPECT_TRUE(torch::equal(g[0], torch::tensor({54.0, -4.0}, torch::kFloat64)));
  const auto h = torch::autograd::grad({g[0]}, {a, b}, {torch::ones_like(a)});
  EXPECT_TRUE(torch::equal(h[0], torch::tensor({54.0, -2.0}, torch::kFloat64)));
  EXPECT_TRUE(torch::equal(h[1], torch::tensor({54.0, 12.0}, torch::kFloat64)));
}

TEST(MathAttention, GivesFusedAttentionASecondDerivativeAndPutsTheSettingBack) {
  at::globalContext().setSDPUseFlash(true);
  torch::manual_seed(1);
  const torch::Tensor q = torch::randn({1, 2, 8, 4}).requires_grad_();
  {
    const MathAttention math;
    const torch::Tensor y = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
    const auto g = torch::autograd::grad({y.square().sum()}, {q}, {}, true, true);
    EXPECT_GT(torch::autograd::grad({g[0].sum()}, {q})[0].norm().item<double>(), 0);
  }
  EXPECT_TRUE(at::globalContext().userEnabledFlashSDP());
}

}  // namespace
}  // namespace curvq
