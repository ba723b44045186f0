#include <algorithm>
#include <cmath>

#include "curvq/curvature/eigen.h"

namespace curvq {
namespace {

// `zero`: what rounding explains; `slack`: what the tolerance of the eigenvalues leaves open.
Definiteness verdict_of(const Eigenpair& top, const Eigenpair& bottom, double zero, double slack) {
  if (bottom.value < -zero && top.value > zero) return Definiteness::kIndefinite;
  if (!top.converged || !bottom.converged) return Definiteness::kUndecided;
  const double lowest = bottom.value - bottom.error_bound;
  const double highest = top.value + top.error_bound;
  if (lowest > zero) return Definiteness::kPositiveDefinite;
  if (highest < -zero) return Definiteness::kNegativeDefinite;
  if (bottom.value >= -zero && lowest >= -slack) return Definiteness::kPositiveSemidefinite;
  if (top.value <= zero && highest <= slack) return Definiteness::kNegativeSemidefinite;
  return Definiteness::kUndecided;
}

}  // namespace

std::string definiteness_name(Definiteness verdict) {
  switch (verdict) {
    case Definiteness::kPositiveDefinite:
      return "positive definite";
    case Definiteness::kPositiveSemidefinite:
      return "positive semidefinite";
    case Definiteness::kNegativeDefinite:
      return "negative definite";
    case Definiteness::kNegativeSemidefinite:
      return "negative semidefinite";
    case Definiteness::kIndefinite:
      return "indefinite";
    case Definiteness::kUndecided:
      break;
  }
  return "undecided";
}

DefinitenessResult definiteness(LinearOperator& op, EigenOptions options,
                                torch::Generator generator) {
  const bool one = op.dimension() == 1;  // top and bottom are the same pair
  options.which = Spectrum::kBothEnds;
  options.count = one ? 1 : 2;
  const EigenResult ends = lanczos_eigenvalues(op, options, generator);
  DefinitenessResult result;
  result.iterations = ends.iterations;
  result.most_positive = ends.pairs.front();
  result.most_negative = ends.pairs.back();
  const double epsilon = op.options().dtype() == torch::kFloat64 ? 0x1p-52 : 0x1p-23;
  const double scale =
      std::max(std::abs(result.most_positive.value), std::abs(result.most_negative.value));
  result.threshold = 100 * epsilon * scale;
  result.verdict = verdict_of(result.most_positive, result.most_negative, result.threshold,
                              std::max(options.tolerance * scale, result.threshold));
  return result;
}

}  // namespace curvq
