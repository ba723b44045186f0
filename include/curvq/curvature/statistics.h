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
//   standard_error = s / sqrt(m) w(3),  half_width = t s / sqrt(m) w(t),
//   w(x) = 1 + (2 x^2 + 1) / (6 x) |g| / sqrt(m),
// s the sample standard deviation, g the sample skewness, t Student's quantile of 97.5 %. Quadratic
// forms z^T H z are as skewed as chi-square where one eigenvalue dominates, and a low mean then
// comes with a low s. w is how far the quantile of a studentised mean of skewed samples lies beyond
// the normal one, in first order (Hall 1992, 2.6: t_x = -x - g (2 x^2 + 1) / (6 sqrt(m))), on the
// side where it lies beyond, and taken for both sides; so intervals cover up to 97.5 % where g is
// large, 95 % where it is small. w(3) is for "within three standard errors". Both vanish against
// the error itself as m grows. Of 30 probes on matrices with eigenvalues i^-p, all of one sign or of
// both, 94 to 97 % lie inside the interval for p from 0.5 to 3; within three standard errors 99 %
// for p up to 1, 98.3 % and more above, where one eigenvalue is most of the matrix: 30 samples of
// chi-square with one degree of freedom do not show all of its skewness. Never below the rounding
// of the samples.
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
