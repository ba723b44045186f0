#pragma once

namespace curvq {

// By which share of itself, a unit of skewness / sqrt(samples), the quantile x of a studentised
// mean lies further out than that of a normal one (Hall 1992, 2.6, first order).
inline double skewness_shift(double x) { return (2 * x * x + 1) / (6 * x); }

}  // namespace curvq
