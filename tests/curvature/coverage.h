// How often an estimate's error lies within its own error bars.
#pragma once

#include <cmath>
#include <functional>

#include "curvq/curvature/statistics.h"

namespace curvq {

struct Coverage {
  int runs = 0;
  int within_three_errors = 0;
  int inside_interval = 0;  // of 95 %
};

// Asks `estimate` with seeds 1 .. runs.
inline Coverage coverage(double truth, const std::function<Estimate(uint64_t seed)>& estimate,
                         int runs = 1000) {
  Coverage result;
  for (int seed = 1; seed <= runs; ++seed) {
    const Estimate e = estimate(seed);
    const double error = std::abs(e.value - truth);
    result.within_three_errors += error <= 3 * e.standard_error;
    result.inside_interval += error <= e.half_width;
    ++result.runs;
  }
  return result;
}

// The smallest count out of n that is no evidence, at three standard deviations of the binomial
// distribution, against a probability of p or more.
inline double least_count(int n, double p) { return n * p - 3 * std::sqrt(n * p * (1 - p)); }

}  // namespace curvq
