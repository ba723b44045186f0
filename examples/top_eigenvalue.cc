// Trains a small net by gradient descent and follows the largest eigenvalue of its Hessian, the
// sharpness: it rises until it meets 2 / learning rate and then hovers there, at the edge of
// stability (Cohen et al. 2021).
//
//   top_eigenvalue [LEARNING_RATE]
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

#include "curvq/curvature/curvature_operator.h"
#include "curvq/curvature/eigen.h"
#include "curvq/curvature/statistics.h"

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(1, 40))),
        second(register_module("second", torch::nn::Linear(40, 40))),
        third(register_module("third", torch::nn::Linear(40, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return third(torch::tanh(second(torch::tanh(first(x)))));
  }
  torch::nn::Linear first, second, third;
};

int main(int argc, char** argv) {
  const double learning_rate = argc > 1 ? std::atof(argv[1]) : 0.3;
  torch::manual_seed(1);
  const auto net = std::make_shared<Net>();
  const torch::Tensor x = torch::linspace(-1, 1, 20).unsqueeze(1);
  const torch::Tensor y = torch::sin(6 * x);

  // What is differentiated: a module, a loss (any functor would do), and data.
  const curvq::Problem problem(curvq::model_of(net), curvq::mse(), {x, y});
  curvq::CurvatureOperator hessian(problem, curvq::Curvature::kHessian);

  std::printf("%8s %12s %12s %10s\n", "step", "loss", "sharpness", "2 / rate");
  torch::optim::SGD optimizer(net->parameters(), learning_rate);
  for (int step = 0; step <= 1500; ++step) {
    if (step % 100 == 0) {
      curvq::EigenOptions options;
      options.which = curvq::Spectrum::kMostPositive;
      const auto top = curvq::lanczos_eigenvalues(hessian, options, curvq::make_generator(1));
      std::printf("%8d %12.6f %12.4f %10.4f\n", step, problem.value(), top.pairs[0].value,
                  2 / learning_rate);
    }
    optimizer.zero_grad();
    (0.5 * (net->forward(x) - y).square()).sum(1).mean().backward();
    optimizer.step();
  }
  return 0;
}
