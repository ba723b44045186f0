#include "compress/output_gradients.h"

#include <gtest/gtest.h>

#include "curvature/label_gradients.h"
#include "curvq/core/error.h"
#include "curvq/nn/differentiable_decoder.h"

namespace curvq {
namespace {

const std::string kModel = std::string(CURVQ_TEST_DATA) + "/models/llama_gqa_tied";

torch::Tensor some_ids(int64_t windows, int64_t length) {
  torch::manual_seed(3);
  return torch::randint(0, 100, {windows, length}, torch::kInt64);
}

// The same through weight gradients of the whole model: dL/dW = sum_t g_t x_t^T, so that for fewer
// tokens than inputs g = dL/dW X^+.
TEST(OutputGradients, EqualThoseThatTheWeightGradientImplies) {
  const DecoderModel model(kModel, Engine::kDequantized);
  const int64_t windows = 3, length = 5;
  const torch::Tensor ids = some_ids(windows, length);
  internal::ScratchFile file(::testing::TempDir(), 1 << 20);
  const auto found = internal::output_gradients(model, ids, {.seed = 7}, &file);
  ASSERT_EQ(found.size(), static_cast<size_t>(model.config().num_layers));
  const DifferentiableDecoder whole(model, torch::kFloat64);
  std::vector<torch::Tensor> sums(3);  // of g g^T
  torch::Generator generator = at::detail::createCPUGenerator(7);
  for (int64_t i = 0; i < windows; ++i) {
    const torch::Tensor logits = whole.forward(ids.narrow(0, i, 1))[0];
    const torch::Tensor labels = sample_labels(
        torch::softmax(model.logits(model.hidden_states(ids.narrow(0, i, 1)))[0], -1), generator);
    const torch::Tensor nll =
        torch::nll_loss(torch::log_softmax(logits, -1), labels.flatten(), {}, at::Reduction::Sum);
    std::vector<torch::Tensor> weights;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      for (const auto& [key, value] : whole.parameters()) {
        if (key == "model.layers.0.self_attn." + std::string(name) + ".weight")
          weights.push_back(value);
      }
    }
    ASSERT_EQ(weights.size(), 3u);
    const auto gradients = torch::autograd::grad({nll}, weights);
    const DecoderBlock block = model.load_block(0);
    const torch::Tensor x =
        block.attention_norm.forward(model.embed(ids.narrow(0, i, 1))[0]).to(torch::kFloat64);
    const torch::Tensor to_tokens = at::linalg_pinv(x.t());
    for (size_t slot = 0; slot < 3; ++slot) {
      const torch::Tensor g = to_tokens.matmul(gradients[slot].t());  // [length, out]
      const torch::Tensor expected = g.square().sum(-1);
      const torch::Tensor energies =
          found[0][slot].energies.narrow(0, i * length, length).to(torch::kFloat64);
      EXPECT_LT(
          ((energies - expected).abs() / (expected + 1e-9 * expected.max())).max().item<double>(),
          1e-3)
          << "window " << i << ", linear " << slot;
      const torch::Tensor outer = g.t().matmul(g) / static_cast<double>(windows * length);
      sums[slot] = i == 0 ? outer : sums[slot] + outer;
    }
  }
  for (size_t slot = 0; slot < 3; ++slot) {
    const torch::Tensor difference = found[0][slot].factor.to(torch::kFloat64) - sums[slot];
    EXPECT_LT(difference.norm().item<double>() / sums[slot].norm().item<double>(), 1e-3);
  }
}

TEST(OutputGradients, SameSeedSameResultAndChunksDoNotMatter) {
  const DecoderModel model(kModel, Engine::kDequantized);
  const torch::Tensor ids = some_ids(6, 8);
  const auto first = internal::output_gradients(model, ids, {.seed = 1}, nullptr);
  const auto again = internal::output_gradients(model, ids, {.seed = 1}, nullptr);
  const auto other = internal::output_gradients(model, ids, {.seed = 2}, nullptr);
  for (size_t layer = 0; layer < first.size(); ++layer) {
    ASSERT_EQ(first[layer].size(), 7u);
    for (size_t slot = 0; slot < 7; ++slot) {
      EXPECT_EQ(first[layer][slot].energies.numel(), 48);
      EXPECT_TRUE(first[layer][slot].energies.equal(again[layer][slot].energies));
      EXPECT_FALSE(first[layer][slot].energies.equal(other[layer][slot].energies));
      EXPECT_GE(first[layer][slot].energies.min().item<float>(), 0);
    }
  }
}

TEST(OutputGradients, HeldOutWindowsAreApart) {
  const DecoderModel model(kModel, Engine::kDequantized);
  const torch::Tensor ids = some_ids(5, 8);
  internal::ScratchFile file(::testing::TempDir(), 1 << 20);
  const auto all = internal::output_gradients(model, ids, {.seed = 1}, &file);
  const auto split = internal::output_gradients(model, ids, {.seed = 1, .held_out = 2}, &file);
  for (size_t slot = 0; slot < 7; ++slot) {
    EXPECT_FALSE(all[0][slot].held_out.defined());
    const torch::Tensor sum = split[0][slot].factor * 0.6 + split[0][slot].held_out * 0.4;
    EXPECT_LT(((sum - all[0][slot].factor).norm() / all[0][slot].factor.norm()).item<double>(),
              1e-3);
    EXPECT_TRUE(split[0][slot].energies.equal(all[0][slot].energies));
  }
}

TEST(ScratchFile, KeepsWhatWasPutAwayAndRefusesWhatDoesNotFit) {
  torch::Tensor a, b;
  {
    internal::ScratchFile file(::testing::TempDir(), 1 << 20);
    a = file.zeros(30, 30);
    b = file.zeros(7, 7);
    EXPECT_EQ(a.abs().max().item<float>(), 0);
    a.fill_(2);
    b.fill_(3);
    internal::ScratchFile::put_away(a);
  }
  EXPECT_TRUE(a.equal(torch::full({30, 30}, 2.0f)));
  EXPECT_TRUE(b.equal(torch::full({7, 7}, 3.0f)));
  EXPECT_THROW(internal::ScratchFile(::testing::TempDir(), int64_t{1} << 60), ResourceError);
}

TEST(ShrunkFactor, MixesWithTheIdentityByTheNumberOfSamples) {
  const torch::Tensor g = torch::tensor({{3.0f, 1.0f}, {1.0f, 1.0f}});  // mean diagonal 2
  // rho = 20 / (20 + 60)
  EXPECT_TRUE(torch::allclose(internal::shrunk_factor(g, 60),
                              torch::tensor({{1.375f, 0.375f}, {0.375f, 0.625f}})));
  EXPECT_TRUE(internal::shrunk_factor(torch::zeros({2, 2}), 60).equal(torch::eye(2)));
}

TEST(MixedWeights, KeepTheTraceAndGiveHalfOfItToTheEnergies) {
  torch::manual_seed(4);
  const torch::Tensor x = torch::randn({50, 6}), energies = torch::rand({50}) + 0.1;
  const torch::Tensor u = internal::mixed_weights(x, energies);
  const torch::Tensor sizes = x.square().sum(-1);
  EXPECT_NEAR((u * sizes).sum().item<double>() / sizes.sum().item<double>(), 1, 1e-6);
  EXPECT_GE(u.min().item<float>(), 0.5f);
  const torch::Tensor extra = (u - 0.5) / energies;  // proportional to the energies
  EXPECT_NEAR(extra.min().item<double>() / extra.max().item<double>(), 1, 1e-3);
  EXPECT_TRUE(internal::mixed_weights(x, torch::zeros({50})).equal(torch::ones({50})));
}

TEST(OutputGradients, AShareOfTheWindowsIsAsIfTheOthersWereNotThere) {
  const DecoderModel model(kModel, Engine::kDequantized);
  const int64_t length = 5;
  const torch::Tensor ids = some_ids(8, length);
  internal::ScratchFile file(::testing::TempDir(), 1 << 20), of_few(::testing::TempDir(), 1 << 20);
  // 3 of the 6 windows that are seen and 1 of the 2 that are held out go backwards.
  const auto found =
      internal::output_gradients(model, ids, {.seed = 4, .held_out = 2, .share = 0.5}, &file);
  const std::vector<int64_t> chosen = {0, 2, 4, 6};
  const auto expected = internal::output_gradients(
      model, ids.index_select(0, torch::tensor(chosen)), {.seed = 4, .held_out = 1}, &of_few);
  for (size_t slot = 0; slot < found[1].size(); ++slot) {
    const internal::OutputGradients &a = found[1][slot], &b = expected[1][slot];
    EXPECT_EQ(a.samples, 3 * length);
    EXPECT_TRUE(torch::equal(a.factor, b.factor));
    EXPECT_TRUE(torch::equal(a.held_out, b.held_out));
    torch::Tensor energies = torch::zeros({8 * length});
    for (size_t i = 0; i < chosen.size(); ++i)
      energies.narrow(0, chosen[i] * length, length)
          .copy_(b.energies.narrow(0, static_cast<int64_t>(i) * length, length));
    EXPECT_TRUE(torch::equal(a.energies, energies));
  }
}

}  // namespace
}  // namespace curvq
