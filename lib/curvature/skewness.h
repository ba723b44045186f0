#pragma once

#include <torch/torch.h>

namespace curvq {

// By which share of itself, a unit of skewness / sqrt(samples), the quantile x of a studentised
// mean lies further out than that of a normal one (Hall 1992, 2.6, first order).
inline double skewness_shift(double x) { return (2 * x * x + 1) / (6 * x); }

// By which share of itself, a unit of 1 / samples, the interval of +- x standard errors around a
// mean has to be wider for skewness and excess kurtosis (Hall 1992, 2.5: what the second
// polynomial of a studentised mean has beside Student's term).
inline torch::Tensor two_sided_widening(double x, const torch::Tensor& skewness,
                                        const torch::Tensor& excess) {
  return (x * x * x * x + 2 * x * x - 3) / 18 * skewness.square() - (x * x - 3) / 12 * excess;
}

}  // namespace curvq
