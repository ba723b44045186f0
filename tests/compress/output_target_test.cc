#include "compress/output_target.h"

#include <gtest/gtest.h>

#include "curvq/core/error.h"

namespace curvq {
namespace {

using internal::corrected_weight;

struct Streams {
  torch::Tensor weight, x, x_float, residual;  // x: behind quantized layers
  torch::Tensor h, input_cross, residual_cross;

  Streams() {
    torch::manual_seed(1);
    weight = torch::randn({6, 10});
    x = torch::randn({200, 10}).mul_(torch::linspace(0.5, 3, 10));
    x_float = x + 0.1 * torch::randn({200, 10});
    residual = 0.1 * torch::randn({200, 6});
    h = x.t().matmul(x) * (2.0 / 200);
    input_cross = (x_float - x).t().matmul(x) * (2.0 / 200);
    residual_cross = residual.t().matmul(x) * (2.0 / 200);
  }
};

// Least squares by LibTorch's own solver (QR), on the tokens rather than on products of them.
TEST(CorrectedWeight, IsTheLeastSquaresFitToTheFloatOutput) {
  const Streams s;
  for (const auto& [a, b] : {std::pair(1.0, 0.0), std::pair(1.0, 1.0), std::pair(0.5, 0.25)}) {
    const torch::Tensor wanted =
        (s.x.matmul(s.weight.t()) + a * (s.x_float - s.x).matmul(s.weight.t()) + b * s.residual)
            .to(torch::kFloat64);
    const torch::Tensor fit =
        std::get<0>(at::linalg_lstsq(s.x.to(torch::kFloat64), wanted)).t().to(torch::kFloat32);
    const torch::Tensor corrected =
        corrected_weight(s.weight, s.h, s.input_cross, s.residual_cross, a, b, 0.0);
    EXPECT_LT((corrected - fit).abs().max().item<float>(), 2e-5f);
  }
}

TEST(CorrectedWeight, LeavesTheWeightWhereInputsAreTheFloatOnes) {
  const Streams s;
  const torch::Tensor none = torch::zeros({10, 10});
  EXPECT_TRUE(corrected_weight(s.weight, s.h, none, {}, 1, 1, 0.01).equal(s.weight));
  EXPECT_TRUE(
      corrected_weight(s.weight, s.h, s.input_cross, s.residual_cross, 0, 0, 0.01).equal(s.weight));
}

TEST(CorrectedWeight, DampingShrinksTheCorrection) {
  const Streams s;
  double last = HUGE_VAL;
  for (const double damping : {0.001, 0.1, 10.0}) {
    const double size =
        (corrected_weight(s.weight, s.h, s.input_cross, s.residual_cross, 1, 1, damping) - s.weight)
            .norm()
            .item<double>();
    EXPECT_LT(size, last);
    last = size;
  }
}

TEST(CorrectedWeight, AnIndefiniteHessianIsAnError) {
  const Streams s;
  EXPECT_THROW(corrected_weight(s.weight, -s.h, s.input_cross, {}, 1, 0, 0.01), NumericalError);
}

}  // namespace
}  // namespace curvq
