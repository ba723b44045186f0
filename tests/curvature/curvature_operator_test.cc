// Operators against matrices computed by brute force in float64 (tests/data/curvature).
#include "curvq/curvature/curvature_operator.h"

#include <gtest/gtest.h>

#include "curvature/golden.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

using testing::Golden;
using testing::golden_directory;
using testing::golden_problem;
using testing::relative_error;

// Float64 with a few thousand operations behind each entry of the small matrices.
constexpr double kTolerance = 1e-11;

torch::Tensor dense(const Problem& problem, Curvature curvature, CurvatureOptions options = {}) {
  CurvatureOperator op(problem, curvature, options);
  return to_dense(op);
}

class GoldenNet : public ::testing::TestWithParam<std::string> {
 protected:
  const std::string net = GetParam();
  const Golden golden{net};
};

TEST_P(GoldenNet, Gradient) {
  const Problem::Gradient found = golden_problem(net).gradient();
  EXPECT_LT(relative_error(found.gradient, golden.tensor("grad")), kTolerance);
}

TEST_P(GoldenNet, Hessian) {
  const torch::Tensor h = dense(golden_problem(net), Curvature::kHessian);
  EXPECT_LT(relative_error(h, golden.matrix("hessian")), kTolerance);
  EXPECT_LT(relative_error(h, h.t()), kTolerance);
}

TEST_P(GoldenNet, GaussNewton) {
  EXPECT_LT(
      relative_error(dense(golden_problem(net), Curvature::kGaussNewton), golden.matrix("ggn")),
      kTolerance);
}

TEST_P(GoldenNet, TrueFisherIsTheSumOverLabels) {
  // The golden Fisher matrix enumerates the labels; of it the diagonal, products with probes and
  // eigenvalues are kept, and the whole equals the Gauss-Newton matrix.
  const torch::Tensor fisher = dense(golden_problem(net), Curvature::kFisher);
  EXPECT_LT(relative_error(fisher.diagonal(), golden.tensor("fisher_true_diag")), kTolerance);
  EXPECT_LT(
      relative_error(torch::linalg_eigvalsh(fisher, "L"), golden.tensor("fisher_true_eigvals")),
      kTolerance);
  EXPECT_LT(relative_error(fisher, golden.matrix("ggn")), kTolerance);
}

TEST_P(GoldenNet, EmpiricalFisher) {
  const torch::Tensor gradients = golden.tensor("per_term_grad");
  const torch::Tensor truth = gradients.t().mm(gradients) / gradients.size(0);
  EXPECT_LT(relative_error(dense(golden_problem(net), Curvature::kEmpiricalFisher), truth),
            kTolerance);
}

TEST_P(GoldenNet, ChunksGiveTheSameProducts) {
  const std::vector<std::pair<Curvature, std::string>> stored = {
      {Curvature::kHessian, "hessian_probe_mv"},
      {Curvature::kGaussNewton, "ggn_probe_mv"},
      {Curvature::kFisher, "fisher_true_probe_mv"},
      {Curvature::kEmpiricalFisher, "fisher_emp_probe_mv"}};
  const torch::Tensor probes =
      to_torch(SafetensorsFile(golden_directory(net) + "data.safetensors").at("probes"));
  for (const auto& [curvature, name] : stored) {
    for (const int64_t chunk_size : {0, 1, 7}) {
      for (const int64_t kept : {0, 1, 100}) {
        CurvatureOperator op(golden_problem(net, {.chunk_size = chunk_size}), curvature,
                             {.kept_graphs = kept});
        for (int time = 0; time < 2; ++time) {
          EXPECT_LT(relative_error(op.apply(probes), golden.tensor(name)), kTolerance)
              << name << " by " << chunk_size << ", " << kept << " graphs kept, time " << time;
        }
      }
    }
  }
}

TEST_P(GoldenNet, BlocksOfLayersAndTensors) {
  const torch::Tensor whole = golden.matrix("hessian");
  for (const Per per : {Per::kLayer, Per::kTensor}) {
    const Problem problem = golden_problem(net, {.per = per});
    int64_t covered = 0;
    for (const Segment& segment : problem.segments()) {
      const std::string glob = segment.name + (per == Per::kLayer ? ".*" : "");
      const Problem block = problem.select({glob});
      ASSERT_EQ(block.dimension(), segment.size) << segment.name;
      const torch::Tensor truth =
          whole.narrow(0, segment.offset, segment.size).narrow(1, segment.offset, segment.size);
      // A block may be small beside the matrix, and zero: the bound is that of the whole.
      EXPECT_LT((dense(block, Curvature::kHessian) - truth).norm().item<double>(),
                kTolerance * whole.norm().item<double>())
          << segment.name;
      covered += segment.size;
    }
    EXPECT_EQ(covered, problem.dimension());
  }
}

TEST_P(GoldenNet, TheModelsOwnLossHasTheSameHessian) {
  const Problem problem(load_torchscript(golden_directory(net) + "loss.pt"), loss_of_model(),
                        testing::golden_data(net));
  EXPECT_LT(relative_error(dense(problem, Curvature::kHessian), golden.matrix("hessian")),
            kTolerance);
  EXPECT_THROW(CurvatureOperator(problem, Curvature::kGaussNewton), UnsupportedError);
}

TEST_P(GoldenNet, Float32IsAsCloseAsFloat32Allows) {
  const Model model =
      net == "llama_tiny_ce"  // whose TorchScript has float64 tables in it
          ? load_decoder(DecoderModel(golden_directory(net)), {.dtype = torch::kFloat32})
          : load_torchscript(golden_directory(net) + "logits.pt", torch::kFloat32);
  const Problem problem(model, testing::golden_loss(net), testing::golden_data(net));
  const torch::Tensor h = dense(problem, Curvature::kHessian);
  EXPECT_EQ(h.scalar_type(), torch::kFloat32);
  // 2^-24 a rounding, some ten roundings deep; another program's products were 4.6e-7 off.
  EXPECT_LT(relative_error(h.to(torch::kFloat64), golden.matrix("hessian")), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Curvature, GoldenNet, ::testing::ValuesIn(testing::golden_nets()),
                         [](const auto& info) { return info.param; });

// The decoder of curvq::nn, which also knows its parameters by the names of the checkpoint.
Problem decoder_problem(bool checkpoint, ProblemOptions options = {}) {
  const DecoderModel model(golden_directory("llama_tiny_ce"));
  return Problem(load_decoder(model, {.dtype = torch::kFloat64, .checkpoint = checkpoint}),
                 cross_entropy(), testing::golden_data("llama_tiny_ce"), std::move(options));
}

TEST(DecoderCurvature, MatricesOfAModelDirectory) {
  const Golden golden("llama_tiny_ce");
  for (const bool checkpoint : {false, true}) {
    const Problem problem = decoder_problem(checkpoint, {.chunk_size = 3});
    EXPECT_LT(relative_error(problem.gradient().gradient, golden.tensor("grad")), kTolerance);
    EXPECT_LT(relative_error(dense(problem, Curvature::kHessian), golden.matrix("hessian")),
              kTolerance);
    EXPECT_LT(relative_error(dense(problem, Curvature::kGaussNewton), golden.matrix("ggn")),
              kTolerance);
  }
}

TEST(DecoderCurvature, SubsetByPattern) {
  const Problem all = decoder_problem(false);
  const Problem some = all.select({"*q_proj*", "re:.*\\.(gate|up)_proj\\."});
  EXPECT_EQ(some.parameters().size(), 3u);
  const torch::Tensor whole = Golden("llama_tiny_ce").matrix("hessian");
  std::vector<torch::Tensor> index;
  for (const Segment& segment : all.segments()) {
    for (const NamedTensor& chosen : some.parameters()) {
      if (chosen.name == segment.name)
        index.push_back(torch::arange(segment.offset, segment.offset + segment.size));
    }
  }
  const torch::Tensor at = torch::cat(index);
  EXPECT_LT(relative_error(dense(some, Curvature::kHessian),
                           whole.index_select(0, at).index_select(1, at)),
            kTolerance);
}

TEST(SampledFisher, MeanOverManyDrawsIsTheTrueFisher) {
  for (const std::string net : {"mlp_tanh_ce", "mlp_relu_mse"}) {
    const torch::Tensor truth = Golden(net).matrix("ggn");
    const auto error = [&](int64_t draws) {
      return relative_error(
          dense(golden_problem(net), Curvature::kSampledFisher, {.draws = draws, .seed = 5}),
          truth);
    };
    // The error of a mean falls as the root of the number of draws: 100 times more, 10 times less,
    // give or take the spread of one sample of it.
    const double few = error(10), many = error(1000);
    EXPECT_LT(many, few / 4) << net;
    EXPECT_LT(many, 0.1) << net;
    EXPECT_GT(many, 1e-4) << net;
  }
}

TEST(SampledFisher, IsAFixedMatrixOfTheSeed) {
  const Problem problem = golden_problem("mlp_tanh_ce", {.chunk_size = 5});
  const auto matrix = [&](uint64_t seed, int64_t kept) {
    return dense(problem, Curvature::kSampledFisher, {.seed = seed, .kept_graphs = kept});
  };
  const torch::Tensor first = matrix(1, 0);
  EXPECT_TRUE(torch::equal(first, matrix(1, 0)));
  EXPECT_TRUE(torch::equal(first, matrix(1, 100)));
  EXPECT_GT(relative_error(matrix(2, 0), first), 1e-3);
}

TEST(Targets, NegativeOnesAreNoLossTerms) {
  Batch data = testing::golden_data("mlp_tanh_ce");
  const auto matrices = [](const Batch& batch) {
    const Problem problem(load_torchscript(golden_directory("mlp_tanh_ce") + "logits.pt"),
                          cross_entropy(), batch, {.chunk_size = 4});
    return std::vector<torch::Tensor>{
        dense(problem, Curvature::kHessian), dense(problem, Curvature::kGaussNewton),
        dense(problem, Curvature::kSampledFisher), dense(problem, Curvature::kEmpiricalFisher)};
  };
  const auto kept = matrices({data.inputs.narrow(0, 0, 12), data.targets.narrow(0, 0, 12)});
  data.targets.narrow(0, 12, 12).fill_(-1);
  const auto masked = matrices(data);
  for (const size_t i : {0, 1, 3}) EXPECT_LT(relative_error(masked[i], kept[i]), kTolerance) << i;
  EXPECT_LT(relative_error(masked[2], kept[2]), kTolerance);  // chunks have their own streams
}

TEST(CustomLosses, AFunctorGivesWhatTheBuiltInLossGives) {
  const auto by_hand = custom_loss([](const torch::Tensor& f, const torch::Tensor& y) {
    return -torch::log_softmax(f, -1).gather(1, y.unsqueeze(1)).mean();
  });
  const Problem problem(load_torchscript(golden_directory("mlp_tanh_ce") + "logits.pt"), by_hand,
                        testing::golden_data("mlp_tanh_ce"), {.chunk_size = 7});
  const Golden golden("mlp_tanh_ce");
  EXPECT_LT(relative_error(dense(problem, Curvature::kHessian), golden.matrix("hessian")),
            kTolerance);
  EXPECT_LT(relative_error(dense(problem, Curvature::kGaussNewton), golden.matrix("ggn")),
            kTolerance);
  const torch::Tensor g = golden.tensor("per_term_grad");
  EXPECT_LT(relative_error(dense(problem, Curvature::kEmpiricalFisher), g.t().mm(g) / g.size(0)),
            kTolerance);
  EXPECT_THROW(CurvatureOperator(problem, Curvature::kFisher), UnsupportedError);
}

struct Net : torch::nn::Module {
  Net() { linear = register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(3, 2))); }
  torch::Tensor forward(const torch::Tensor& x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};

TEST(Modules, AModuleOfTheCallerIsReadAtEachProduct) {
  torch::manual_seed(3);
  const auto net = std::make_shared<Net>();
  net->to(torch::kFloat64);
  const torch::Tensor x = torch::randn({9, 3}, torch::kFloat64);
  const torch::Tensor y = torch::randint(2, {9}, torch::kInt64);
  CurvatureOperator op(Problem(model_of(net), cross_entropy(), {x, y}), Curvature::kHessian);
  const auto expected = [&] {
    // The Hessian of softmax regression is sum (diag p - p p^T) x [x;1] x [x;1]^T / n.
    const torch::Tensor p = torch::softmax(net->forward(x), -1).detach();
    const torch::Tensor s = torch::diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1);
    return torch::einsum("nab,ni,nj->aibj", {s, x, x}).reshape({6, 6}) / 9;
  };
  EXPECT_LT(relative_error(to_dense(op).narrow(0, 0, 6).narrow(1, 0, 6), expected()), kTolerance);
  {
    torch::NoGradGuard no_grad;
    net->linear->weight.mul_(3);
  }
  EXPECT_LT(relative_error(to_dense(op).narrow(0, 0, 6).narrow(1, 0, 6), expected()), kTolerance);
  // Optimizers write to parameters in a way that LibTorch's version counters do not see.
  torch::optim::SGD optimizer(net->parameters(), 5.0);
  torch::cross_entropy_loss(net->forward(x), y).backward();
  optimizer.step();
  EXPECT_LT(relative_error(to_dense(op).narrow(0, 0, 6).narrow(1, 0, 6), expected()), kTolerance);
}

// y = theta x, squared error: a problem that a caller writes down without a module.
Problem line(const torch::Tensor& theta, const LossFunction& loss = nullptr) {
  Model model{
      "line", {{"theta", theta}}, [theta](const Batch& batch) { return batch.inputs * theta; }};
  const torch::Tensor x = torch::tensor({{1.0}, {2.0}, {3.0}}, torch::kFloat64);
  return Problem(model, loss ? custom_loss(loss) : mse(), {x, x.clone()});
}

TEST(BadProblems, AreToldApart) {
  const auto theta = [] { return torch::ones({1}, torch::kFloat64).requires_grad_(); };
  const auto fails = [&](const LossFunction& loss, const std::string& says) {
    CurvatureOperator op(line(theta(), loss), Curvature::kHessian);
    try {
      op.apply(torch::ones({1, 1}, torch::kFloat64));
      ADD_FAILURE() << "nothing thrown; wanted " << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  using torch::Tensor;
  fails([](const Tensor& f, const Tensor&) { return f.square(); }, "not a scalar");
  fails([](const Tensor& f, const Tensor&) { return f.detach().sum(); }, "does not depend");
  fails([](const Tensor& f, const Tensor&) { return (f / 0).sum(); }, "is inf");
  fails([](const Tensor& f, const Tensor&) { return torch::sqrt(f - f).sum(); }, "theta");
  // 1/M sum x^2 = 14/3.
  CurvatureOperator op(line(theta()), Curvature::kHessian);
  EXPECT_NEAR(to_dense(op).item<double>(), 14.0 / 3, 1e-12);
  EXPECT_THROW(op.apply(torch::full({1, 1}, NAN, torch::kFloat64)), NumericalError);
  EXPECT_THROW(op.apply(torch::ones({1, 2}, torch::kFloat64)), UsageError);
  EXPECT_THROW(op.apply(torch::ones({1, 1}, torch::kFloat32)), UsageError);
}

TEST(BadProblems, LinearLossHasAZeroHessian) {
  const torch::Tensor theta = torch::ones({1}, torch::kFloat64).requires_grad_();
  CurvatureOperator op(
      line(theta, [](const torch::Tensor& f, const torch::Tensor&) { return f.mean(); }),
      Curvature::kHessian);
  EXPECT_EQ(to_dense(op).item<double>(), 0);
}

}  // namespace
}  // namespace curvq
