// Means of samples with their error bars, and the random probes that the samples come from.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace curvq {

// A mean of independent samples. NaN: not known.
struct Estimate {
  double value;
  double standard_error;
  double half_width;  // of the 95 % interval: Student's t at samples - 1 degrees of freedom
  int64_t samples = 0;

  Estimate();
};

// Mean and error of samples [m], m >= 2 (UsageError otherwise), in float64.
//   standard_error = s / sqrt(m) * (1 + 0.9 |g| / sqrt(m)),  s the sample standard deviation and g
// the sample skewness. The second factor is ours: quadratic forms z^T H z are as skewed as
// chi-square where one eigenvalue dominates, a low mean then comes with a low s, and plain
// s / sqrt(m) is exceeded threefold in 2 % of cases instead of 0.5 % (30 probes, Hessians of small
// networks). It is the first-order term of Johnson's (1978) modified t, symmetrised, its constant
// measured: 95 to 97 % inside the interval, 98.9 to 99.8 % within three standard errors. It
// vanishes against the error itself as m grows. Never below the rounding of the samples.
Estimate estimate_mean(const torch::Tensor& samples);

// The point t that Student's distribution at `degrees` >= 1 stays below with `probability` in
// (0.5, 1): exact finite series of Abramowitz and Stegun 26.7.3-4, inverted by bisection.
double student_t_quantile(double probability, int64_t degrees);

// How random vectors are drawn: independent entries +-1, or standard normal. Entries +-1 have the
// smaller variance, normal ones are rotation invariant.
enum class ProbeKind { kRademacher, kNormal };

// A generator of its own; the global seed is never touched.
torch::Generator make_generator(uint64_t seed);

// [count, dimension] of the given dtype and device, drawn on the CPU so that every device gets the
// same numbers.
torch::Tensor draw_probes(ProbeKind kind, int64_t count, int64_t dimension,
                          const torch::TensorOptions& options, torch::Generator generator);

// How many vectors of this dimension to multiply at once: 64 for small problems, 1 for large ones.
int64_t probes_at_once(int64_t dimension);

}  // namespace curvq
