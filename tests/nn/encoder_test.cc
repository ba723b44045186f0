// Encoders against what transformers computed for the same directories (tests/data/encoders).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "curvq/core/error.h"
#include "curvq/io/safetensors.h"
#include "curvq/nn/block_graph.h"
#include "curvq/nn/decoder.h"
#include "curvq/nn/differentiable_decoder.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq {
namespace {

using testing::HasSubstr;

const std::string kEncoders = std::string(CURVQ_TEST_DATA) + "/encoders/";

double difference(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  return ((found - expected).abs().max() / expected.abs().max()).item<double>();
}

class Encoders : public testing::TestWithParam<std::string> {
 protected:
  std::string path_ = kEncoders + GetParam();
  SafetensorsFile reference_{path_ + "/reference.safetensors"};
  torch::Tensor ids_ = to_torch(reference_.at("input_ids"));
  torch::Tensor lengths_ = to_torch(reference_.at("attention_mask")).sum(1);
};

// There the sentences are filled up to one length and masked, here each goes by itself.
TEST_P(Encoders, HiddenStatesEqualTransformers) {
  const DecoderModel model(path_);
  const torch::Tensor expected = to_torch(reference_.at("hidden"));
  for (int64_t i = 0; i < ids_.size(0); ++i) {
    const int64_t length = lengths_[i].item<int64_t>();
    const torch::Tensor ids = ids_.narrow(0, i, 1).narrow(1, 0, length);
    EXPECT_LT(difference(model.hidden_states(ids)[0], expected[i].narrow(0, 0, length)), 1e-5);
  }
}

// The gradients by which calibration weighs tokens, against central differences.
TEST_P(Encoders, BlockGradientsAreThoseOfTheBlock) {
  const DecoderModel model(path_, Engine::kDequantized, torch::kFloat64);
  const DecoderBlock block = model.load_block(0);
  const torch::Tensor x = model.embed(ids_.narrow(0, 0, 1));
  torch::manual_seed(3);
  const torch::Tensor seed = torch::randn_like(x), step = torch::randn_like(x) * 1e-5;
  std::vector<torch::Tensor> products;
  const torch::Tensor out = forward_with_products(block, x, products);
  EXPECT_LT(difference(block.forward(x), out), 1e-13);
  const double difference_of_ends =
      ((block.forward(x + step) - block.forward(x - step)) * seed).sum().item<double>() / 2;
  const BlockGraph graph = block_graph(block, x, products);
  const torch::Tensor gradient = torch::autograd::grad({graph.out}, {graph.x}, {seed})[0];
  const double predicted = (gradient * step).sum().item<double>();
  EXPECT_NEAR(predicted, difference_of_ends, 1e-6 * std::abs(predicted));
}

TEST_P(Encoders, HaveNoNextToken) {
  const auto model = std::make_shared<DecoderModel>(path_, Engine::kDequantized);
  EXPECT_THROW(model->logits(torch::zeros({1, 32})), UnsupportedError);
  EXPECT_THROW(DecoderSession{model}, UnsupportedError);
  try {
    DifferentiableDecoder(*model, torch::kFloat32);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bert models are encoders"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Encoders, testing::Values("bert", "bert_masked_lm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace curvq
