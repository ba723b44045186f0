// Every model family against what transformers computed for the same directories
// (tests/data/families).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "curvq/io/safetensors.h"
#include "curvq/nn/block_graph.h"
#include "curvq/nn/decoder.h"
#include "curvq/nn/differentiable_decoder.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq {
namespace {

const std::string kFamilies = std::string(CURVQ_TEST_DATA) + "/families/";

std::vector<std::string> directories() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilies)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Families : public testing::TestWithParam<std::string> {
 protected:
  std::string path_ = kFamilies + GetParam();
  SafetensorsFile reference_{path_ + "/reference.safetensors"};
  torch::Tensor ids_ = to_torch(reference_.at("input_ids"));
  torch::Tensor logits_ = to_torch(reference_.at("logits"));
};

// In shares of the largest magnitude expected.
double difference(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  return ((found - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST_P(Families, LogitsEqualTransformers) {
  const DecoderModel model(path_);
  EXPECT_LT(difference(model.logits(model.hidden_states(ids_)), logits_), 1e-5);
}

TEST_P(Families, StepByStepWithACacheEqualsTheWholeWindow) {
  const auto model = std::make_shared<DecoderModel>(path_);
  DecoderSession session(model);
  for (int64_t i = 0; i < ids_.size(1); ++i) {
    std::vector<int32_t> next = {ids_[0][i].item<int32_t>()};
    if (i == 0) next.push_back(ids_[0][++i].item<int32_t>());
    EXPECT_LT(difference(session.append(next), logits_[0][i]), 1e-5) << "position " << i;
  }
}

TEST_P(Families, GradientEqualsTransformers) {
  const DecoderModel model(path_, Engine::kDequantized);
  const DifferentiableDecoder decoder(model, torch::kFloat32);
  const torch::Tensor logits = decoder.forward(ids_);
  const torch::Tensor loss =
      torch::nll_loss(torch::log_softmax(logits.narrow(1, 0, ids_.size(1) - 1), -1).flatten(0, 1),
                      ids_.narrow(1, 1, ids_.size(1) - 1).flatten());
  const auto& parameters = decoder.parameters();
  const auto weight = std::find_if(parameters.begin(), parameters.end(), [&](const auto& entry) {
    return entry.first == reference_.metadata().at("gradient_of");
  });
  ASSERT_NE(weight, parameters.end());
  const torch::Tensor gradient = torch::autograd::grad({loss}, {weight->second})[0];
  EXPECT_LT(difference(gradient, to_torch(reference_.at("gradient"))), 1e-4);
}

// All parameters are leaves of the one graph: none is left out, none is a copy.
TEST_P(Families, EveryParameterHasAGradient) {
  const DecoderModel model(path_, Engine::kDequantized);
  const DifferentiableDecoder decoder(model, torch::kFloat64);
  std::vector<torch::Tensor> weights;
  for (const auto& [name, weight] : decoder.parameters()) weights.push_back(weight);
  EXPECT_EQ(weights.size(), expected_tensors(model.config()).size());
  const torch::Tensor loss = torch::log_softmax(decoder.forward(ids_), -1).square().mean();
  const auto gradients = torch::autograd::grad({loss}, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_EQ(gradients[i].sizes(), weights[i].sizes());
    EXPECT_GT(gradients[i].abs().max().item<double>(), 0) << decoder.parameters()[i].first;
  }
}

TEST_P(Families, KnownProductsChangeNoGradient) {
  const DecoderModel model(path_, Engine::kDequantized, torch::kFloat64);
  torch::manual_seed(5);
  for (int64_t layer = 0; layer < model.config().num_layers; ++layer) {
    const DecoderBlock block = model.load_block(layer);
    const torch::Tensor x = model.embed(ids_);
    std::vector<torch::Tensor> products;
    const torch::Tensor out = forward_with_products(block, x, products);
    const BlockGraph plain = block_graph(block, x), known = block_graph(block, x, products);
    EXPECT_LT(difference(plain.out.detach(), out), 1e-13);
    EXPECT_LT(difference(block.forward(x), out), 1e-13);
    const torch::Tensor seed = torch::randn_like(out);
    const auto gradients = [&](const BlockGraph& graph) {
      std::vector<torch::Tensor> wanted = {graph.x};
      wanted.insert(wanted.end(), graph.outputs.begin(), graph.outputs.end());
      return torch::autograd::grad({graph.out}, wanted, {seed});
    };
    const auto expected = gradients(plain), found = gradients(known);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_LT(difference(found[i], expected[i]), 1e-12) << "layer " << layer << ", " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(directories()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

TEST(FamilyTable, HasAReferenceForEachButLlama) {
  std::set<std::string> tested = {"llama", "bert"};  // tests/data/models, encoders
  for (const std::string& name : directories())
    tested.insert(DecoderConfig::from_directory(kFamilies + name).family);
  const std::vector<std::string> known = known_families();
  EXPECT_EQ(tested, std::set<std::string>(known.begin(), known.end()));
}

}  // namespace
}  // namespace curvq
