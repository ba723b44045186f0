#include "curvq/curvature/statistics.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <string>

#include "curvature/skewness.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// P(|T| < t) at angle theta = atan(t / sqrt(degrees)).
double central_probability(double theta, int64_t degrees) {
  const double sine = std::sin(theta), cosine = std::cos(theta), square = cosine * cosine;
  const bool odd = degrees % 2 == 1;
  // Terms cos^k theta, k = 1, 3, ... or 0, 2, ... up to degrees - 2.
  double term = odd ? cosine : 1.0, sum = 0;
  for (int64_t k = odd ? 1 : 0; k <= degrees - 2; k += 2) {
    sum += term;
    term *= square * (k + 1.0) / (k + 2.0);
  }
  return odd ? (theta + sine * sum) * 2 / std::numbers::pi : sine * sum;
}

}  // namespace

Estimate::Estimate() : value(kNaN), standard_error(kNaN), half_width(kNaN) {}

double student_t_quantile(double probability, int64_t degrees) {
  if (!(probability > 0.5 && probability < 1) || degrees < 1)
    throw UsageError(
        "a quantile of Student's t needs a probability in (0.5, 1) and 1 degree of "
        "freedom or more");
  const double central = 2 * probability - 1;
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (central_probability(middle, degrees) < central ? low : high) = middle;
  }
  return std::tan(0.5 * (low + high)) * std::sqrt(static_cast<double>(degrees));
}

Estimate estimate_mean(const torch::Tensor& samples) {
  const int64_t m = samples.numel();
  if (m < 2) throw UsageError("an error bar needs 2 samples or more, got " + std::to_string(m));
  const torch::Tensor x = samples.reshape({m}).to(torch::kFloat64);
  Estimate result;
  result.samples = m;
  result.value = x.mean().item<double>();
  const torch::Tensor d = x - result.value;
  const double variance = d.square().sum().item<double>() / (m - 1);
  const double root = std::sqrt(static_cast<double>(m));
  double skewness = 0;
  if (m > 2 && variance > 0) {  // g of Fisher, unbiased for normal samples
    const double third = d.pow(3).sum().item<double>();
    skewness = third * m / ((m - 1.0) * (m - 2.0)) / std::pow(variance, 1.5);
  }
  const double epsilon = samples.scalar_type() == torch::kFloat32 ? 0x1p-23 : 0x1p-52;
  // The error that `quantile` of is taken: widened by how far skewness moves that quantile.
  const auto error = [&](double quantile) {
    const double widening = 1 + skewness_shift(quantile) * std::abs(skewness) / root;
    return std::max(std::sqrt(variance) / root * widening, epsilon * x.abs().max().item<double>());
  };
  const double t = student_t_quantile(0.975, m - 1);
  result.standard_error = error(3);
  result.half_width = t * error(t);
  return result;
}

torch::Generator make_generator(uint64_t seed) {
  return torch::make_generator<at::CPUGeneratorImpl>(seed);
}

namespace {

// Fair signs, 64 out of each draw.
template <typename T>
void draw_signs(T* out, int64_t count, torch::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  auto* bits = at::check_generator<at::CPUGeneratorImpl>(generator);
  for (int64_t begin = 0; begin < count; begin += 64) {
    const uint64_t word = bits->random64();
    const int64_t size = std::min<int64_t>(64, count - begin);
    for (int64_t i = 0; i < size; ++i)
      out[begin + i] = static_cast<T>(static_cast<int>(word >> i & 1) * 2 - 1);
  }
}

}  // namespace

torch::Tensor draw_probes(ProbeKind kind, int64_t count, int64_t dimension,
                          const torch::TensorOptions& options, torch::Generator generator) {
  const torch::TensorOptions host = options.device(torch::kCPU);
  torch::Tensor probes;
  if (kind == ProbeKind::kRademacher) {
    probes = torch::empty({count, dimension}, host);
    AT_DISPATCH_FLOATING_TYPES(probes.scalar_type(), "draw_probes", [&] {
      draw_signs(probes.data_ptr<scalar_t>(), probes.numel(), generator);
    });
  } else {
    probes = torch::randn({count, dimension}, generator, host);
  }
  return probes.to(options.device());
}

int64_t probes_at_once(int64_t dimension) {
  constexpr int64_t kEntries = int64_t{1} << 22;  // 32 MiB of float64
  return std::clamp<int64_t>(kEntries / std::max<int64_t>(dimension, 1), 1, 64);
}

}  // namespace curvq
