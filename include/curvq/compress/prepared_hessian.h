// The factor of a damped inverse Hessian that error feedback goes through: what GPTQ and SparseGPT
// share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace curvq {

struct DampingOptions {
  // Added to the diagonal of H, as a share of the mean of its live entries. 0 or more; raised where
  // calibration tokens are fewer than the inputs (see starting_damping).
  double damping = 0.01;
  // Times the damping is raised tenfold while the damped Hessian is not positive definite.
  int max_damping_retries = 6;

  // Throws UsageError naming field, value and bound.
  void validate() const;
};

// kStatic: columns with the largest diagonal of H first; scales stay those of the original,
// contiguous groups, so nothing has to be stored. kNone: left to right.
enum class ActOrder { kStatic, kNone };

// The inverse of a damped Hessian in the order in which columns are gone through.
struct PreparedHessian {
  std::vector<int64_t> order;  // [n], column that comes j-th
  std::vector<float> upper;    // [n, n] U with U^T U = (P H P^T + damping mean I)^-1
  double damping = 0;          // the share that was used in the end
  std::string raised_because;  // why it is not the one that was asked for; empty if it is
  int64_t dead_inputs = 0;     // columns with H_jj = 0: they get the mean diagonal and no feedback
  bool used_double = false;
};

// The damping to begin with: the one asked for, or, where the rank of H's live part is at most
// three quarters of its size, the shrinkage that suits a covariance of as many samples (Chen,
// Wiesel, Eldar and Hero 2010), at most 0.9. With less, error feedback makes rounding worse than to
// nearest on other tokens.
//   because  takes the reason for a raise
double starting_damping(const float* hessian, int64_t n, double damping, std::string* because);

// H + damping mean(live diag H) I, [n, n]; zero rows stay zero.
std::vector<float> damped_hessian(const float* hessian, int64_t n, double damping);

// Throws NumericalError, naming layer, count and the first entry, unless all [n, n] are finite.
void check_hessian(const float* hessian, int64_t n, const std::string& layer);

// Each damping is tried in float32, then in float64; both a factor of H and its inverse must be
// finite. Throws NumericalError, naming layer, counts and the first column, for a Hessian that is
// not finite, and for one that stays indefinite after all damping retries. An all-zero Hessian
// gives dead_inputs == n and an empty factor.
//   hessian [n, n] float32, symmetric, row-major; not modified
//   group   with kStatic: columns that stay together, by their largest diagonal; 0: each for itself
PreparedHessian prepare_hessian(const float* hessian, int64_t n, const DampingOptions& options,
                                ActOrder order, const std::string& layer, int64_t group = 0);

// The same from an inverse [n, n] float64, symmetric, of the damped Hessian up to a factor.
// Throws NumericalError if it is not positive definite.
PreparedHessian prepare_inverse(const float* hessian, const std::vector<double>& inverse, int64_t n,
                                const DampingOptions& options, ActOrder order,
                                const std::string& layer, int64_t group = 0);

}  // namespace curvq
