// Extreme eigenvalues of an operator by products with vectors, with bounds on their errors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

enum class Spectrum { kLargestMagnitude, kMostPositive, kMostNegative, kBothEnds };

// One eigenpair. With r = |H v - lambda v| there is an eigenvalue within r of lambda; and the
// nearest one is within r^2 / gap if no other lies within gap of lambda (Parlett 1998, 4.5
// and 10.3). Lanczos takes the distance to the other Ritz values, less their residuals, for the
// gap, which is too large while the basis is small; so its bound is never below what the last
// product changed. It can still be wrong where the start vector hardly touches an eigenvector.
struct Eigenpair {
  double value;
  double residual;     // r
  double error_bound;  // min(r, max(r^2 / gap, last change))
  bool converged;
};

struct EigenOptions {
  Spectrum which = Spectrum::kLargestMagnitude;
  // Eigenvalues wanted, 1 to the dimension; kBothEnds takes them in turns from the top and the
  // bottom.
  int64_t count = 1;
  // Converged when the error bound of each wanted eigenvalue is <= tolerance * |the largest found|.
  double tolerance = 1e-3;
  // Products H v at most.
  int64_t max_products = 300;
  // Vectors held at once (Lanczos), count + 2 or more; 0: the larger of 2 count + 10 and 20.
  int64_t basis_size = 0;
  // lanczos_eigenvalues calls it after each product with the pairs as they stand.
  std::function<void(int64_t products, const std::vector<Eigenpair>& pairs)> observe = nullptr;
  // Where to start, [n]; undefined: a normal vector. The gradient is a good start at a minimum.
  torch::Tensor start;

  void validate(int64_t dimension) const;  // throws UsageError naming field, value and bound
};

struct EigenResult {
  std::vector<Eigenpair> pairs;  // in the order of `which`
  torch::Tensor vectors;         // [count, n], orthonormal rows
  int64_t iterations = 0;        // products H v computed
  bool converged = false;        // all pairs
};

// Thick-restart Lanczos (Wu and Simon 2000) with full reorthogonalisation. A multiple eigenvalue
// appears once from one start vector; when the Krylov space closes, another random direction is
// tried until one brings nothing new among the wanted. The result for a given generator state is
// deterministic; `generator` draws the start and such directions.
EigenResult lanczos_eigenvalues(LinearOperator& op, const EigenOptions& options,
                                torch::Generator generator);

// Power iteration with Rayleigh quotients; each eigenvector found is projected out of what
// follows (deflation). Largest magnitudes only (UsageError). A baseline: it needs many more
// products than Lanczos, and the gap of its bound is unknown, so that error_bound = residual.
EigenResult power_iteration(LinearOperator& op, const EigenOptions& options,
                            torch::Generator generator);

enum class Definiteness {
  kPositiveDefinite,
  kPositiveSemidefinite,
  kNegativeDefinite,
  kNegativeSemidefinite,
  kIndefinite,
  kUndecided,
};

// "positive definite", ...
std::string definiteness_name(Definiteness verdict);

// The verdict and what it stands on. Indefinite is proven: two vectors with v^T H v of opposite
// sign, beyond rounding (`threshold`). The others stand on the bounds of both extreme eigenvalues:
// positive definite if lambda_min - bound > threshold, positive semidefinite if lambda_min >=
// -threshold and lambda_min - bound >= -tolerance * largest |lambda|, and so for negative.
struct DefinitenessResult {
  Definiteness verdict = Definiteness::kUndecided;
  Eigenpair most_positive;
  Eigenpair most_negative;
  double threshold;  // 100 eps of the dtype times the largest |lambda|
  int64_t iterations = 0;
};

// `which` and `count` of the options are not used. Goes on after a proof of indefiniteness until
// both ends have converged or max_products is spent, so that the evidence is complete.
DefinitenessResult definiteness(LinearOperator& op, EigenOptions options,
                                torch::Generator generator);

}  // namespace curvq
