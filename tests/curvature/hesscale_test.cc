#include "curvq/curvature/hesscale.h"

#include <gtest/gtest.h>

#include "curvq/core/error.h"
#include "golden_layers.h"

namespace curvq {
namespace {

OutputDerivatives derivatives(const GoldenNet& net) {
  const torch::Tensor outputs = sequential_activations(net.layers, net.x).back();
  return net.cross_entropy ? cross_entropy_derivatives(outputs, net.y)
                           : squared_error_derivatives(outputs, net.y);
}

// In the order of the net's parameter vector.
torch::Tensor flattened(const std::vector<LayerDiagonal>& diagonals) {
  std::vector<torch::Tensor> parts;
  for (const LayerDiagonal& d : diagonals) {
    if (d.weight.defined()) parts.push_back(d.weight.flatten());
    if (d.bias.defined()) parts.push_back(d.bias);
  }
  return torch::cat(parts);
}

class HesscaleOfNet : public testing::TestWithParam<const char*> {};

TEST_P(HesscaleOfNet, IsTheGoldenRecursion) {
  const GoldenNet net = golden_net(GetParam());
  const SafetensorsFile golden = golden_file(GetParam());
  for (const bool gauss_newton : {false, true}) {
    const torch::Tensor expected =
        golden_tensor(golden, gauss_newton ? "hesscale_gn_diag" : "hesscale_diag");
    const torch::Tensor d = flattened(hesscale(net.layers, net.x, derivatives(net), gauss_newton));
    EXPECT_LT((d - expected).norm().item<double>(), 1e-12 * expected.norm().item<double>());
    if (gauss_newton) {
      EXPECT_GE(d.min().item<double>(), 0);
    }
  }
}

TEST_P(HesscaleOfNet, TheLastLayerIsExact) {
  const GoldenNet net = golden_net(GetParam());
  const torch::Tensor exact = golden_tensor(golden_file(GetParam()), "hessian_diag");
  const torch::Tensor d = flattened(hesscale(net.layers, net.x, derivatives(net)));
  const SequentialLayer& last = net.layers.back();
  const int64_t size = last.weight.numel() + (last.bias.defined() ? last.bias.numel() : 0);
  const torch::Tensor a = d.narrow(0, d.size(0) - size, size);
  EXPECT_TRUE(torch::allclose(a, exact.narrow(0, d.size(0) - size, size), 1e-9, 1e-12));
}

INSTANTIATE_TEST_SUITE_P(Golden, HesscaleOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Hesscale, ActivationsOfOneUnitAreExact) {
  // One input, one unit a layer: no off-diagonal terms, so that the recursion is the Hessian.
  for (const SequentialKind kind :
       {SequentialKind::kTanh, SequentialKind::kSigmoid, SequentialKind::kRelu}) {
    const torch::Tensor w1 = torch::full({1, 1}, 0.7, torch::kFloat64).requires_grad_();
    const torch::Tensor w2 = torch::full({1, 1}, -1.3, torch::kFloat64).requires_grad_();
    const torch::Tensor x = torch::tensor({0.4, 1.1, 2.0}, torch::kFloat64).unsqueeze(1);
    const torch::Tensor y = torch::tensor({0.3, -0.2, 0.5}, torch::kFloat64).unsqueeze(1);
    const std::vector<SequentialLayer> layers{{SequentialKind::kLinear, w1, {}, {}},
                                              {kind, {}, {}, {}},
                                              {SequentialKind::kLinear, w2, {}, {}}};
    const torch::Tensor f = sequential_activations(layers, x).back();
    const torch::Tensor loss = 0.5 * (f - y).square().mean();
    const torch::Tensor g = torch::autograd::grad({loss}, {w1}, {}, true, true)[0];
    const double exact = torch::autograd::grad({g.sum()}, {w1})[0].item<double>();
    const torch::NoGradGuard no_grad;
    const std::vector<LayerDiagonal> d = hesscale(layers, x, squared_error_derivatives(f, y));
    EXPECT_NEAR(d[0].weight.item<double>(), exact, 1e-12);
    EXPECT_FALSE(d[1].weight.defined());
  }
}

TEST(Hesscale, RejectsDerivativesOfAnotherShape) {
  const GoldenNet net = golden_net("mlp_tanh_ce");
  EXPECT_THROW(hesscale(net.layers, net.x, {torch::zeros({2, 4}), torch::zeros({2, 4})}),
               UsageError);
}

}  // namespace
}  // namespace curvq
