#include "curvq/curvature/kronecker.h"

#include <gtest/gtest.h>

#include "curvature/label_gradients.h"
#include "curvq/core/error.h"
#include "curvq/curvature/statistics.h"
#include "golden_layers.h"

namespace curvq {
namespace {

using enum WeightSharing;

// What a layer of a golden net saw: inputs [n, R, in(+1)], gradients of the unnormalised loss terms
// in its outputs, for every column of the output Hessian's root [columns, n, R, out] and with the
// stored labels [n, R, out].
struct LayerSamples {
  std::string name;
  torch::Tensor inputs, columns, labelled;
};

std::vector<LayerSamples> layer_samples(const GoldenNet& net) {
  std::vector<torch::Tensor> in{net.x}, out;
  for (const SequentialLayer& layer : net.layers) {
    out.push_back(sequential_activations({layer}, in.back()).back().requires_grad_());
    in.push_back(out.back());
  }
  const torch::Tensor f = out.back();
  const torch::Tensor columns = output_hessian_columns(net, f.detach());
  const torch::Tensor residual =
      net.cross_entropy ? cross_entropy_derivatives(f.detach(), net.y).first : f.detach() - net.y;
  std::vector<LayerSamples> result;
  for (size_t l = 0; l < net.layers.size(); ++l) {
    if (!net.layers[l].weight.defined()) continue;
    const bool convolution = net.layers[l].kind == SequentialKind::kConvolution;
    const auto gradient = [&](const torch::Tensor& v) {
      torch::Tensor g = torch::autograd::grad({f}, {out[l]}, {v}, true)[0];
      return convolution ? unfold_gradients(g) : g.unsqueeze(1);
    };
    LayerSamples s;
    s.name = net.names[l];
    s.inputs = convolution ? unfold_inputs(in[l].detach(), net.layers[l].convolution)
                           : in[l].detach().unsqueeze(1);
    if (net.layers[l].bias.defined()) s.inputs = append_one(s.inputs);
    std::vector<torch::Tensor> gradients;
    for (int64_t c = 0; c < columns.size(0); ++c) gradients.push_back(gradient(columns[c]));
    s.columns = torch::stack(gradients);
    s.labelled = gradient(residual);
    result.push_back(s);
  }
  return result;
}

void expect_equal(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_LT((found - expected).norm().item<double>(), 1e-10 * expected.norm().item<double>());
}

class KroneckerOfNet : public testing::TestWithParam<const char*> {
 protected:
  KroneckerOfNet()
      : net_(golden_net(GetParam())),
        samples_(layer_samples(net_)),
        golden_(golden_file(GetParam())),
        terms_(net_.x.size(0)) {}
  KroneckerFactors factors(const LayerSamples& s) const {
    return {input_factor(s.inputs, kExpand), output_factor(s.columns, kExpand, terms_)};
  }
  GoldenNet net_;
  std::vector<LayerSamples> samples_;
  SafetensorsFile golden_;
  int64_t terms_;
};

TEST_P(KroneckerOfNet, FactorsAreTheGoldenOnes) {
  for (const LayerSamples& s : samples_) {
    const auto golden = [&](const std::string& field) {
      return golden_tensor(golden_, "kfac." + s.name + "." + field);
    };
    expect_equal(input_factor(s.inputs, kExpand), golden("A_expand"));
    expect_equal(output_factor(s.columns, kExpand, terms_), golden("G_expand"));
    expect_equal(output_factor(s.labelled, kExpand, terms_), golden("Gemp_expand"));
    if (s.inputs.size(1) == 1) continue;
    expect_equal(input_factor(s.inputs, kReduce), golden("A_reduce"));
    expect_equal(output_factor(s.columns, kReduce, terms_), golden("G_reduce"));
    expect_equal(output_factor(s.labelled, kReduce, terms_), golden("Gemp_reduce"));
  }
}

TEST_P(KroneckerOfNet, EkfacMomentsAreTheGoldenOnes) {
  for (const LayerSamples& s : samples_) {
    const EkfacFactors e = ekfac(factors(s), s.inputs, s.columns, terms_);
    const torch::Tensor expected =
        golden_tensor(golden_, "kfac." + s.name + ".ekfac_lambda_sorted");
    const torch::Tensor sorted = std::get<0>(e.moments.flatten().sort());
    EXPECT_LT((sorted - expected).abs().max().item<double>(), 1e-9 * expected.max().item<double>());
    EXPECT_NEAR(e.trace(), expected.sum().item<double>(), 1e-10 * e.trace());
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, KroneckerOfNet,
                         testing::Values("deep_linear_mse", "conv_tanh_ce", "mlp_tanh_ce"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Kronecker, IsExactOnDeepLinearNetsWithSquaredError) {
  const GoldenNet net = golden_net("deep_linear_mse");
  const torch::Tensor ggn = golden_matrix(golden_file("deep_linear_mse"), "ggn_triu");
  int64_t offset = 0;
  for (const LayerSamples& s : layer_samples(net)) {
    const KroneckerFactors k{input_factor(s.inputs, kExpand),
                             output_factor(s.columns, kExpand, net.x.size(0))};
    const int64_t size = k.a.size(0) * k.g.size(0);
    const torch::Tensor block = ggn.narrow(0, offset, size).narrow(1, offset, size);
    expect_equal(k.dense(), block);
    // Where K-FAC is exact, EK-FAC is the same matrix.
    expect_equal(ekfac(k, s.inputs, s.columns, net.x.size(0)).dense(), block);
    offset += size;
  }
  EXPECT_EQ(offset, ggn.size(0));
}

KroneckerFactors random_factors(int64_t in, int64_t out) {
  const torch::Tensor x = torch::randn({3 * in, in}, make_generator(1), torch::kFloat64);
  const torch::Tensor g = torch::randn({3 * out, out}, make_generator(2), torch::kFloat64);
  return {input_factor(x, kExpand), 0.01 * output_factor(g, kExpand, 3 * out)};
}

TEST(Kronecker, AgreesWithTheDenseMatrix) {
  const KroneckerFactors k = random_factors(5, 4);
  const torch::Tensor dense = k.dense();
  const torch::Tensor v = torch::randn({4, 5}, make_generator(3), torch::kFloat64);
  expect_equal(k.apply(v).flatten(), dense.mv(v.flatten()));
  expect_equal(k.diagonal().flatten(), dense.diagonal());
  EXPECT_NEAR(k.trace(), dense.trace().item<double>(), 1e-12);
  EXPECT_NEAR(k.frobenius_norm(), dense.norm().item<double>(), 1e-12);

  const KroneckerDamping damping = tikhonov_damping(k, 1e-3);
  EXPECT_NEAR(damping.a * damping.g, 1e-3, 1e-15);
  EXPECT_NEAR(damping.pi, std::sqrt((k.a.trace() / 5 / (k.g.trace() / 4)).item<double>()), 1e-12);
  const torch::Tensor damped = torch::kron(k.g + damping.g * torch::eye(4, torch::kFloat64),
                                           k.a + damping.a * torch::eye(5, torch::kFloat64));
  const KroneckerInverse inverse(k, damping);
  expect_equal(inverse.solve(v).flatten(), torch::linalg_solve(damped, v.flatten()));
  EXPECT_NEAR(inverse.log_determinant(), torch::logdet(damped).item<double>(), 1e-10);
  expect_equal(torch::kron(inverse.g(), inverse.a()), torch::linalg_inv(damped));
}

TEST(Kronecker, EkfacAgreesWithTheDenseMatrix) {
  const torch::Tensor x = torch::randn({30, 3, 5}, make_generator(1), torch::kFloat64);
  const torch::Tensor g = torch::randn({2, 30, 3, 4}, make_generator(2), torch::kFloat64);
  const KroneckerFactors k{input_factor(x, kExpand), output_factor(g, kExpand, 60)};
  const EkfacFactors e = ekfac(k, x, g, 60);
  const torch::Tensor dense = e.dense();
  const torch::Tensor v = torch::randn({4, 5}, make_generator(3), torch::kFloat64);
  expect_equal(e.apply(v).flatten(), dense.mv(v.flatten()));
  expect_equal(e.diagonal().flatten(), dense.diagonal());
  EXPECT_NEAR(e.trace(), dense.trace().item<double>(), 1e-10);
  const torch::Tensor damped = dense + 0.1 * torch::eye(20, torch::kFloat64);
  expect_equal(e.solve(v, 0.1).flatten(), torch::linalg_solve(damped, v.flatten()));
  EXPECT_NEAR(e.log_determinant(0.1), torch::logdet(damped).item<double>(), 1e-10);
  // The exact block of these samples: EK-FAC has its trace and is nearer to it than K-FAC.
  const torch::Tensor w = g.transpose(2, 3).matmul(x).flatten(2).flatten(0, 1);
  const torch::Tensor block = w.t().matmul(w) / 60;
  EXPECT_NEAR(e.trace(), block.trace().item<double>(), 1e-10);
  EXPECT_LT((dense - block).norm().item<double>(), (k.dense() - block).norm().item<double>());
  EXPECT_THROW(e.solve(v, -1e3), NumericalError);
}

TEST(Kronecker, AnEmbeddingHasADiagonalInputFactor) {
  const torch::Tensor ids = torch::tensor({{0, 2, 2}, {1, 2, 0}}, torch::kInt64);
  const torch::Tensor g = torch::randn({2, 3, 4}, make_generator(2), torch::kFloat64);
  const KroneckerFactors k{embedding_input_factor(ids, 5), output_factor(g, kExpand, 6)};
  const torch::Tensor units = torch::one_hot(ids, 5).to(torch::kFloat64);
  const KroneckerFactors full{input_factor(units, kExpand), k.g};
  expect_equal(torch::diag(k.a), full.a);
  expect_equal(k.dense(), full.dense());
  expect_equal(k.diagonal(), full.diagonal());
  const torch::Tensor v = torch::randn({4, 5}, make_generator(3), torch::kFloat64);
  expect_equal(k.apply(v), full.apply(v));
  const KroneckerDamping damping = tikhonov_damping(k, 1e-2);
  const KroneckerInverse a(k, damping), b(full, damping);
  expect_equal(a.solve(v), b.solve(v));
  expect_equal(torch::diag(a.a()), b.a());
  EXPECT_NEAR(a.log_determinant(), b.log_determinant(), 1e-10);
  EXPECT_THROW(embedding_input_factor(ids, 2), UsageError);
}

TEST(Kronecker, SampledLabelsHaveTheExactSecondMoment) {
  const torch::Tensor logits = torch::randn({3, 4}, make_generator(1), torch::kFloat64);
  const torch::Tensor p = torch::softmax(logits, -1);
  const torch::Tensor exact = torch::diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1);
  const torch::Tensor s = softmax_hessian_columns(logits).permute({1, 2, 0});  // [M, C, columns]
  expect_equal(s.matmul(s.transpose(1, 2)), exact);
  constexpr int64_t kDraws = 40000;
  const torch::Tensor g =
      sampled_label_gradients(logits, kDraws, make_generator(2)).transpose(0, 1);
  // Entries of g g^T lie in [-1, 1]: their means have a standard error of at most 1 / sqrt(draws).
  const torch::Tensor sampled = g.transpose(1, 2).matmul(g) / kDraws;
  EXPECT_LT((sampled - exact).abs().max().item<double>(), 4 / std::sqrt(kDraws));
  EXPECT_THROW(sampled_label_gradients(logits, 0, make_generator(2)), UsageError);
}

// Four standard errors of a binomial count; a class that cannot be is never drawn.
TEST(LayerFactors, LabelsAreDrawnWithTheirProbabilities) {
  constexpr int64_t kRows = 40000;
  const torch::Tensor p = torch::tensor({0.0f, 0.5f, 0.2f, 0.3f, 0.0f});
  const torch::Tensor labels = sample_labels(p.expand({kRows, 5}), make_generator(3));
  const torch::Tensor counts = torch::bincount(labels.flatten(), {}, 5);
  for (int64_t c = 0; c < 5; ++c) {
    const double share = static_cast<double>(p[c].item<float>());
    EXPECT_NEAR(counts[c].item<double>(), kRows * share,
                4 * std::sqrt(kRows * share * (1 - share)));
  }
}

TEST(Kronecker, TokenWeights) {
  const torch::Tensor x = torch::randn({2, 3, 5}, make_generator(1), torch::kFloat64);
  const torch::Tensor g = torch::randn({2, 3, 4}, make_generator(2), torch::kFloat64);
  const torch::Tensor big_g = output_factor(g, kExpand, 6);
  const torch::Tensor q = token_weights(g, big_g, 0.1);
  torch::Tensor a = torch::zeros({5, 5}, torch::kFloat64);
  const torch::Tensor inverse =
      torch::linalg_inv(big_g + 0.1 * big_g.diagonal().mean() * torch::eye(4, torch::kFloat64));
  for (int n = 0; n < 2; ++n) {
    for (int r = 0; r < 3; ++r) {
      const torch::Tensor expected = g[n][r].dot(inverse.mv(g[n][r]));
      EXPECT_NEAR(q[n][r].item<double>(), expected.item<double>(), 1e-12);
      a += expected * torch::outer(x[n][r], x[n][r]) / 6;
    }
  }
  expect_equal(input_factor(x, kExpand, q), a);
  expect_equal(input_factor(x, kExpand, torch::ones({2, 3}, torch::kFloat64)),
               input_factor(x, kExpand));
  EXPECT_EQ(token_weights(torch::zeros({2, 3, 4}), torch::zeros({4, 4})).max().item<double>(), 0);
}

TEST(Kronecker, Float32IsNearFloat64AndLowPrecisionIsWidened) {
  const torch::Tensor x = torch::randn({50, 6}, make_generator(1), torch::kFloat64);
  EXPECT_TRUE(torch::allclose(input_factor(x.to(torch::kFloat32), kExpand).to(torch::kFloat64),
                              input_factor(x, kExpand), 0, 1e-5));
  EXPECT_EQ(input_factor(x.to(torch::kBFloat16), kExpand).scalar_type(), torch::kFloat32);
}

TEST(Kronecker, BadInputIsNamed) {
  const torch::Tensor x = torch::ones({2, 3}, torch::kFloat64);
  torch::Tensor bad = x.clone();
  bad[1][2] = std::nan("");
  EXPECT_THROW(input_factor(bad, kExpand), NumericalError);
  EXPECT_THROW(input_factor(torch::ones({3}), kExpand), UsageError);
  EXPECT_THROW(input_factor(x, kReduce, torch::ones({2})), UsageError);
  EXPECT_THROW(input_factor(x, kExpand, torch::ones({3})), UsageError);
  EXPECT_THROW(output_factor(x, kExpand, 0), UsageError);
  EXPECT_THROW(unfold_gradients(x), UsageError);
  // Rank one and no damping.
  const KroneckerFactors k{torch::ones({3, 3}), torch::ones({2, 2})};
  EXPECT_THROW(KroneckerInverse(k, {}), NumericalError);
  EXPECT_THROW(tikhonov_damping(k, -1), UsageError);
  EXPECT_THROW((KroneckerFactors{torch::ones({3, 2}), k.g}.validate()), UsageError);
  EXPECT_THROW(ekfac(k, torch::ones({2, 3}), torch::ones({4, 2}), 2), UsageError);
}

}  // namespace
}  // namespace curvq
