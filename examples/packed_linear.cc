// A gated MLP on packed 4-bit weights, without LibTorch: quantize, prepack, and multiply with the
// inputs in float32 and rounded to 8-bit integers; prints how far the second is from the first.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/kernels/linear.h"

namespace {

std::vector<float> random_values(int64_t count, unsigned seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}

curvq::PrepackedWeight random_weight(int64_t rows, int64_t cols, unsigned seed) {
  const std::vector<float> weight = random_values(rows * cols, seed, 0.02f);
  const float amax = curvq::max_abs(weight.data(), rows * cols);
  return curvq::PrepackedWeight(
      curvq::quantize_rtn(weight.data(), rows, cols, curvq::Scheme::nvfp4(), amax));
}

}  // namespace

int main() try {
  constexpr int64_t kTokens = 5, kHidden = 576, kInner = 1536;
  const curvq::PrepackedWeight gate = random_weight(kInner, kHidden, 1);
  const curvq::PrepackedWeight up = random_weight(kInner, kHidden, 2);
  const curvq::PrepackedWeight down = random_weight(kHidden, kInner, 3);
  const std::vector<float> x = random_values(kTokens * kHidden, 4, 1);

  // down(silu(gate(x)) * up(x)) + x: gate and up share one input, the residual is added at the end.
  const auto mlp = [&](curvq::InputRounding rounding) {
    std::vector<float> inner(kTokens * kInner), out(kTokens * kHidden);
    const curvq::LinearInput input(gate, x.data(), kTokens, kHidden, rounding);
    curvq::linear_swiglu(gate, up, input, inner.data(), kInner);
    const curvq::LinearInput gated(down, inner.data(), kTokens, kInner, rounding);
    curvq::linear(down, gated, out.data(), kHidden, {.residual = x.data(), .ld_residual = kHidden});
    return out;
  };
  const std::vector<float> exact = mlp(curvq::InputRounding::kNone);
  const std::vector<float> rounded = mlp(curvq::InputRounding::kA8);

  double error = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(static_cast<double>(rounded[i]) - exact[i], 2);
    norm += std::pow(static_cast<double>(exact[i]) - x[i], 2);
  }
  std::printf("%s: inputs of 8 bits move the layer by %.2f %%\n", curvq::linear_path(),
              100 * std::sqrt(error / norm));
  return 0;
} catch (const curvq::Error& error) {
  std::fprintf(stderr, "packed_linear: %s\n", error.what());
  return error.exit_code();
}
