#include "curvq/curvature/kfac.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "curvq/core/error.h"
#include "curvq/curvature/statistics.h"
#include "golden.h"

namespace curvq {
namespace {

using namespace testing;

const auto kAll = [](const std::string&) { return true; };

std::vector<LayerFactors> decoder_factors(const std::string& directory, const Batch& tokens,
                                          torch::ScalarType dtype, const KfacOptions& options) {
  const DecoderModel model(directory, Engine::kDequantized, dtype);
  std::vector<LayerFactors> layers;
  kfac_factors(model, tokens, options, kAll,
               [&](LayerFactors layer) { layers.push_back(std::move(layer)); });
  return layers;
}

void expect_golden(const std::vector<LayerFactors>& layers, const std::string& net,
                   const std::string& a, const std::string& g, double tolerance) {
  const Golden golden(net);
  for (const LayerFactors& layer : layers) {
    const std::string prefix = "kfac." + layer.name + ".";
    EXPECT_LT(relative_error(layer.factors.a, golden.tensor(prefix + a)), tolerance) << layer.name;
    EXPECT_LT(relative_error(layer.factors.g, golden.tensor(prefix + g)), tolerance) << layer.name;
  }
}

class KfacOfNet : public ::testing::TestWithParam<std::string> {};

TEST_P(KfacOfNet, ExactAndEmpiricalFactorsAreTheGoldenOnes) {
  for (const int64_t chunk : {0, 3}) {
    const Problem problem = golden_problem(GetParam(), {.chunk_size = chunk});
    const auto exact = kfac_factors(problem, {.labels = KfacLabels::kExact});
    EXPECT_FALSE(exact.empty());
    expect_golden(exact, GetParam(), "A_expand", "G_expand", 1e-10);
    expect_golden(kfac_factors(problem, {.labels = KfacLabels::kData}), GetParam(), "A_expand",
                  "Gemp_expand", 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, KfacOfNet, ::testing::ValuesIn(golden_nets()),
                         [](const auto& info) { return info.param; });

TEST(Kfac, FindsTheLayersOfTorchScript) {
  const auto names = [](const std::string& net) {
    std::vector<std::string> found;
    for (const LayerFactors& layer : kfac_factors(golden_problem(net), {}))
      found.push_back(layer.name + " " + std::to_string(layer.num_inputs) +
                      (layer.has_bias ? " bias" : ""));
    return found;
  };
  // 10 images of 7 x 7: conv1 3 x 3 by 2 gives 9 positions, conv2 2 x 2 gives 4.
  EXPECT_EQ(names("conv_tanh_ce"),
            (std::vector<std::string>{"conv1 90 bias", "conv2 40 bias", "fc 10 bias"}));
  EXPECT_EQ(names("llama_tiny_ce").size(), 8u);
}

TEST(Kfac, ReducesOverPositions) {
  const auto layers =
      kfac_factors(golden_problem("conv_tanh_ce", {.chunk_size = 4}),
                   {.labels = KfacLabels::kExact, .sharing = WeightSharing::kReduce});
  expect_golden({layers[0], layers[1]}, "conv_tanh_ce", "A_reduce", "G_reduce", 1e-10);
}

TEST(Kfac, GoesThroughADecoderBlockByBlock) {
  const Batch tokens = golden_data("llama_tiny_ce");
  const std::string directory = golden_directory("llama_tiny_ce");
  const auto exact =
      decoder_factors(directory, tokens, torch::kFloat64, {.labels = KfacLabels::kExact});
  ASSERT_EQ(exact.size(), 8u);
  expect_golden(exact, "llama_tiny_ce", "A_expand", "G_expand", 1e-10);
  expect_golden(decoder_factors(directory, tokens, torch::kFloat64, {.labels = KfacLabels::kData}),
                "llama_tiny_ce", "A_expand", "Gemp_expand", 1e-10);
  // Some hundred roundings of 2^-24 on the way.
  expect_golden(decoder_factors(directory, tokens, torch::kFloat32, {.labels = KfacLabels::kExact}),
                "llama_tiny_ce", "A_expand", "G_expand", 2e-5);
}

// Windows of one token are loss terms of their own, whose gradient in a weight is g a^T and in a
// bias g: both factors out of the gradients of the whole model.
TEST(Kfac, ADecoderWithBiasesAgreesWithGradientsOfItsParameters) {
  const std::string directory = std::string(CURVQ_TEST_DATA) + "/models/llama_biases_sharded";
  const torch::Tensor ids = torch::randint(0, 160, {5, 1}, make_generator(1), torch::kInt64);
  torch::Tensor targets = torch::randint(0, 160, {5, 1}, make_generator(2), torch::kInt64);
  targets[3][0] = -1;
  const auto found =
      decoder_factors(directory, {ids, targets}, torch::kFloat64, {.labels = KfacLabels::kData});
  EXPECT_EQ(found.size(), 14u);  // the head is the embedding
  const DecoderModel model(directory, Engine::kDequantized);
  const Model whole = load_decoder(model, {.dtype = torch::kFloat64});
  for (const LayerFactors& layer : found) {
    EXPECT_TRUE(layer.has_bias);
    EXPECT_EQ(layer.num_inputs, 5);
    if (layer.name.ends_with("q_proj") || layer.name.ends_with("k_proj")) continue;  // no gradient
    torch::Tensor a = torch::zeros_like(layer.factors.a), g = torch::zeros_like(layer.factors.g);
    for (int64_t i = 0; i < 5; ++i) {
      const Batch one = {ids.narrow(0, i, 1),
                         i == 3 ? targets.narrow(0, 0, 1) : targets.narrow(0, i, 1)};
      const Problem problem(whole, cross_entropy(), one,
                            {.parameters = {layer.name + ".weight", layer.name + ".bias"}});
      const auto parts = problem.split(problem.gradient().gradient);
      const torch::Tensor of_bias = parts[1];
      torch::Tensor input = torch::ones({layer.factors.a.size(0)}, torch::kFloat64);
      input.narrow(0, 0, input.size(0) - 1)
          .copy_(parts[0].t().mv(of_bias) / of_bias.square().sum());
      a += torch::outer(input, input) / 5;
      if (i != 3) g += torch::outer(of_bias, of_bias) / 4;
    }
    EXPECT_LT(relative_error(layer.factors.a, a), 1e-10) << layer.name;
    EXPECT_LT(relative_error(layer.factors.g, g), 1e-10) << layer.name;
  }
}

// The input of a layer with a bias ends in a one: a token alone makes the factor of each of its two
// experts the square of its own last column and leaves the others' at zero, the entry of the bias
// included. Several tokens make the mean of these.
TEST(Kfac, ExpertsWithBiasesCountTheirOwnTokens) {
  const std::string directory = std::string(CURVQ_TEST_DATA) + "/families/gpt_oss";
  const torch::Tensor ids = torch::randint(0, 96, {6, 1}, make_generator(1), torch::kInt64);
  const auto factors_of = [&](const torch::Tensor& some) {
    auto layers =
        decoder_factors(directory, {some, some}, torch::kFloat64, {.labels = KfacLabels::kData});
    std::erase_if(layers, [](const LayerFactors& layer) {
      return layer.name.find(".experts.") == std::string::npos;
    });
    return layers;
  };
  const auto all = factors_of(ids);
  ASSERT_EQ(all.size(), 2u * 4 * 3);
  std::vector<torch::Tensor> means(all.size());
  for (int64_t token = 0; token < ids.size(0); ++token) {
    const auto alone = factors_of(ids.narrow(0, token, 1));
    ASSERT_EQ(alone.size(), all.size());
    int used = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      const torch::Tensor& a = alone[i].factors.a;
      const torch::Tensor column = a.select(1, a.size(1) - 1);
      const double share = column[-1].item<double>();
      used += share == 1;
      if (share == 1) {
        EXPECT_LT(relative_error(a, torch::outer(column, column)), 1e-12) << alone[i].name;
      } else {
        EXPECT_EQ(a.abs().max().item<double>(), 0) << alone[i].name;
      }
      means[i] = token == 0 ? a : means[i] + a;
    }
    EXPECT_EQ(used, 2 * 2 * 3);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const torch::Tensor mean = means[i] / static_cast<double>(ids.size(0));
    EXPECT_LT((all[i].factors.a - mean).abs().max().item<double>(), 1e-13) << all[i].name;
  }
}

// The mean over seeds is the exact factor within what the seeds' spread allows: z of 4 in one of
// 16,000.
void expect_unbiased(const std::function<std::vector<LayerFactors>(const KfacOptions&)>& factors) {
  const auto exact = factors({.labels = KfacLabels::kExact});
  constexpr int kSeeds = 60;
  std::vector<torch::Tensor> traces(exact.size());
  for (torch::Tensor& t : traces) t = torch::zeros({kSeeds}, torch::kFloat64);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto sampled = factors({.draws = 2, .seed = static_cast<uint64_t>(seed)});
    for (size_t l = 0; l < exact.size(); ++l)
      traces[l][seed] = sampled[l].factors.g.trace().item<double>();
  }
  for (size_t l = 0; l < exact.size(); ++l) {
    const Estimate mean = estimate_mean(traces[l]);
    EXPECT_GT(mean.standard_error, 0);
    EXPECT_NEAR(mean.value, exact[l].factors.g.trace().item<double>(), 4 * mean.standard_error)
        << exact[l].name;
  }
}

TEST(Kfac, SampledLabelsAreRightOnAverage) {
  for (const char* net : {"mlp_tanh_ce", "deep_linear_mse", "llama_tiny_ce"}) {
    const Problem problem = golden_problem(net);
    expect_unbiased([&](const KfacOptions& options) { return kfac_factors(problem, options); });
  }
  expect_unbiased([](const KfacOptions& options) {
    return decoder_factors(golden_directory("llama_tiny_ce"), golden_data("llama_tiny_ce"),
                           torch::kFloat64, options);
  });
}

TEST(Kfac, TheSameSeedGivesTheSameLabels) {
  const Problem problem = golden_problem("mlp_tanh_ce");
  const auto g = [&](uint64_t seed) { return kfac_factors(problem, {.seed = seed})[0].factors.g; };
  EXPECT_TRUE(torch::equal(g(1), g(1)));
  EXPECT_FALSE(torch::equal(g(1), g(2)));
}

TEST(Kfac, LabelsAreASamplesOwnHoweverTheDataAreDivided) {
  const Problem whole = golden_problem("conv_tanh_ce"),
                chunked = golden_problem("conv_tanh_ce", {.chunk_size = 3});
  const auto g = [](const Problem& problem, int64_t first) {
    return kfac_factors(problem, {.draws = 2, .seed = 5, .first_sample = first})[0].factors.g;
  };
  const torch::Tensor all = g(whole, 0);
  EXPECT_LT(relative_error(g(chunked, 0), all), 1e-12);
  EXPECT_LT(
      relative_error((4 * g(whole.samples(0, 4), 0) + 6 * g(whole.samples(4, 6), 4)) / 10, all),
      1e-12);
  EXPECT_GT(
      relative_error((4 * g(whole.samples(0, 4), 0) + 6 * g(whole.samples(4, 6), 0)) / 10, all),
      1e-3);
}

TEST(Kfac, AModuleUsedTwiceHasTwicePositions) {
  struct Twice : torch::nn::Module {
    Twice() { linear = register_module("linear", torch::nn::Linear(3, 3)); }
    torch::Tensor forward(const torch::Tensor& x) {
      return linear->forward(torch::tanh(linear->forward(x)));
    }
    torch::nn::Linear linear{nullptr};
  };
  torch::manual_seed(0);
  const auto module = std::make_shared<Twice>();
  module->to(torch::kFloat64);
  const torch::Tensor x = torch::randn({4, 3}, make_generator(1), torch::kFloat64);
  const Problem problem(model_of(module), mse(), {x, torch::zeros_like(x)});
  const auto layers = kfac_factors(problem, {.labels = KfacLabels::kExact});
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].num_inputs, 8);
  const torch::Tensor second = torch::tanh(module->linear->forward(x)).detach();
  const torch::Tensor both = append_one(torch::cat({x, second}));
  EXPECT_LT(relative_error(layers[0].factors.a, both.t().matmul(both) / 8), 1e-12);
}

// A 1-D convolution is one of images of height 1.
TEST(Kfac, OneDimensionalConvolution) {
  torch::manual_seed(0);
  const auto f64 = torch::TensorOptions().dtype(torch::kFloat64).requires_grad(true);
  const torch::Tensor conv = torch::randn({3, 2, 4}, f64), head = torch::randn({5, 15}, f64);
  const torch::Tensor x = torch::randn({6, 2, 10}, torch::kFloat64);
  const auto factors = [&](bool image) {
    Model model{"net", {{"conv.weight", conv}, {"head.weight", head}}, nullptr};
    if (image) model.parameters[0].value = conv.detach().unsqueeze(2).clone().requires_grad_();
    const torch::Tensor weight = model.parameters[0].value;
    model.forward = [=](const Batch& batch) {
      const torch::Tensor h = image ? torch::conv2d(batch.inputs.unsqueeze(2), weight, {}, {1, 2},
                                                    torch::IntArrayRef({0, 1}))
                                    : torch::conv1d(batch.inputs, weight, {}, 2, 1);
      return torch::linear(torch::tanh(h.flatten(1)), head);
    };
    return kfac_factors(Problem(model, cross_entropy(), {x, torch::arange(6) % 5}),
                        {.labels = KfacLabels::kExact});
  };
  const auto flat = factors(false), image = factors(true);
  ASSERT_EQ(flat.size(), 2u);
  EXPECT_EQ(flat[0].num_inputs, 30);
  for (size_t l = 0; l < 2; ++l) {
    EXPECT_LT(relative_error(flat[l].factors.a, image[l].factors.a), 1e-12);
    EXPECT_LT(relative_error(flat[l].factors.g, image[l].factors.g), 1e-12);
  }
}

TEST(Kfac, SomeParameters) {
  Problem problem = golden_problem("mlp_tanh_ce", {.parameters = {"fc2.*", "fc3.weight"}});
  const auto layers = kfac_factors(problem, {});
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_TRUE(layers[0].has_bias);
  EXPECT_FALSE(layers[1].has_bias);
  EXPECT_EQ(layers[1].factors.a.size(0), 8);
  const DecoderModel model(golden_directory("llama_tiny_ce"), Engine::kDequantized);
  std::vector<std::string> names;
  kfac_factors(
      model, golden_data("llama_tiny_ce"), {},
      [](const std::string& name) { return name.ends_with("up_proj"); },
      [&](const LayerFactors& layer) { names.push_back(layer.name); });
  EXPECT_EQ(names, std::vector<std::string>{"model.layers.0.mlp.up_proj"});
}

template <typename E>
void expect_error(const std::function<void()>& work, const std::string& says) {
  try {
    work();
    FAIL() << "no error that says " << says;
  } catch (const E& error) {
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(Kfac, BadInputIsNamed) {
  const Problem mlp = golden_problem("mlp_tanh_ce");
  expect_error<UsageError>([&] { kfac_factors(mlp, {.draws = 0}); }, "draws is 0");
  expect_error<UsageError>(
      [&] { kfac_factors(golden_problem("llama_tiny_ce"), {.sharing = WeightSharing::kReduce}); },
      "one loss term a sample, these have 6");
  expect_error<UnsupportedError>([&] { kfac_factors(mlp.select({"*.bias"}), {}); },
                                 "no chosen weight");
  const Problem own_loss(load_torchscript(golden_directory("mlp_tanh_ce") + "loss.pt"),
                         loss_of_model(), golden_data("mlp_tanh_ce"));
  expect_error<UnsupportedError>([&] { kfac_factors(own_loss, {}); }, "returns its loss");
  const Problem custom(
      load_torchscript(golden_directory("mlp_tanh_ce") + "logits.pt"),
      custom_loss([](const torch::Tensor& f, const torch::Tensor&) { return f.square().mean(); }),
      golden_data("mlp_tanh_ce"));
  expect_error<UnsupportedError>([&] { kfac_factors(custom, {}); }, "no likelihood");
  expect_error<UnsupportedError>([&] { kfac_factors(custom, {.labels = KfacLabels::kExact}); },
                                 "no root");
  EXPECT_NO_THROW(kfac_factors(custom, {.labels = KfacLabels::kData}));
  const torch::Tensor wide = torch::randn({2, 2100}, make_generator(1), torch::kFloat64);
  torch::nn::Linear linear(2100, 5000);
  linear->to(torch::kFloat64);
  const Problem many(model_of(linear), cross_entropy(), {wide, torch::zeros({2}, torch::kInt64)});
  expect_error<UsageError>([&] { kfac_factors(many, {.labels = KfacLabels::kExact}); }, "5000");
}

TEST(Kfac, NamesTheLayerThatOverflows) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2),
                            torch::nn::Linear(2, 2));
  net->to(torch::kFloat32);
  torch::NoGradGuard no_grad;
  for (torch::Tensor parameter : net->parameters()) parameter.fill_(1e20f);
  const Problem problem(model_of(net), mse(), {torch::ones({1, 2}), torch::zeros({1, 2})});
  // The first gives 3e20, the second 6e40: infinite in float32, and the third's inputs.
  expect_error<NumericalError>([&] { kfac_factors(problem, {}); },
                               "2: inputs of a layer are not finite");
}

}  // namespace
}  // namespace curvq
