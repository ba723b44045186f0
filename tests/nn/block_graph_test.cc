#include "curvq/nn/block_graph.h"

#include <gtest/gtest.h>

#include <string>

namespace curvq {
namespace {

// Known products change no gradient: float64, where the order of sums shows at 1e-15.
TEST(BlockGraph, HasTheSameGradientsWithKnownProducts) {
  for (const std::string name : {"llama_gqa_tied", "llama_biases_sharded"}) {
    const DecoderModel model(std::string(CURVQ_TEST_DATA) + "/models/" + name, Engine::kDequantized,
                             torch::kFloat64);
    torch::manual_seed(5);
    const DecoderBlock block = model.load_block(0);
    const torch::Tensor x = torch::randn({2, 6, model.config().hidden_size}, torch::kFloat64);
    std::vector<torch::Tensor> products;
    const torch::Tensor out = forward_with_products(block, x, products);
    ASSERT_EQ(products.size(), 6u) << name;
    const BlockGraph plain = block_graph(block, x), known = block_graph(block, x, products);
    EXPECT_LT((out - plain.out).abs().max().item<double>(), 1e-13 * out.abs().max().item<double>())
        << name;
    const torch::Tensor seed = torch::randn_like(out);
    const auto gradients = [&](const BlockGraph& graph) {
      std::vector<torch::Tensor> wanted = {graph.x};
      wanted.insert(wanted.end(), graph.outputs.begin(), graph.outputs.end());
      return torch::autograd::grad({graph.out}, wanted, {seed});
    };
    const auto expected = gradients(plain), found = gradients(known);
    ASSERT_EQ(found.size(), 8u);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(),
                1e-13 * expected[i].abs().max().item<double>())
          << name << ", gradient " << i;
    }
  }
}

}  // namespace
}  // namespace curvq
