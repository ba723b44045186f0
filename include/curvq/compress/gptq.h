// GPTQ: rounding with error feedback through the inverse Hessian of the layer's output error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

// kStatic: columns with the largest diagonal of H first; scales stay those of the original,
// contiguous groups, so nothing has to be stored. kNone: left to right.
enum class ActOrder { kStatic, kNone };

struct GptqOptions {
  // Added to the diagonal of H, as a share of the mean of its live entries. 0 or more; raise it
  // where calibration tokens are few.
  double damping = 0.01;
  // Columns between two updates of all later columns; a matter of speed only. 1 or more.
  int64_t block_size = 128;
  ActOrder act_order = ActOrder::kStatic;
  // Lets each group (of at most 256 columns) take, instead of the scale it is given, the one near
  // it with which its rounding adds least to the objective. Groups then stay together in the order.
  // MXFP4 keeps its scales (refine() searches them).
  bool search_scales = false;
  // Times the damping is raised tenfold while the damped Hessian is not positive definite.
  int max_damping_retries = 6;

  // Throws UsageError naming field, value and bound.
  void validate() const;
};

// The inverse of a damped Hessian in the order in which columns are rounded.
struct PreparedHessian {
  std::vector<int64_t> order;  // [n], column rounded j-th
  std::vector<float> upper;    // [n, n] U with U^T U = (P H P^T + damping mean I)^-1
  double damping = 0;          // the share that was used in the end
  int64_t dead_inputs = 0;     // columns with H_jj = 0: they get the mean diagonal and no feedback
  bool used_double = false;
};

// Throws NumericalError, naming layer, counts and the first column, for a Hessian that is not
// finite, and for one that stays indefinite after all damping retries. An all-zero Hessian gives
// dead_inputs == n and an empty factor.
//   hessian [n, n] float32, symmetric, row-major; not modified
//   group   with kStatic: columns that stay together, by their largest diagonal; 0: each for itself
PreparedHessian prepare_hessian(const float* hessian, int64_t n, const GptqOptions& options,
                                const std::string& layer, int64_t group = 0);

struct GptqResult {
  QuantizedMatrix matrix;
  double damping = 0;
  int64_t dead_inputs = 0;
  bool all_dead = false;  // no information: every weight was rounded to nearest
};

// Chooses codes on a fixed grid so that  tr((W - Q) H (W - Q)^T)  is small (Frantar et al. 2022):
// for each column j in order
//   q_j = round(w_j),  e = (w_j - q_j) / U_jj,  w_k -= e U_jk  for all later k.
//   weight  [rows, cols] float32, row-major, finite; not modified
//   hessian [cols, cols] float32, symmetric, e.g. 2/N sum x x^T; its scale does not matter
// The result does not depend on the number of threads. Deviations from the paper: the Cholesky
// factor of the inverse comes from one factorisation of the reversed Hessian; dead inputs keep
// their weights (rounded to nearest) and do not enter the damping.
GptqResult gptq(const float* weight, const float* hessian, ScaleGrid grid,
                const GptqOptions& options, const std::string& layer);

}  // namespace curvq
