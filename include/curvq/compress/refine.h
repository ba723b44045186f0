// Block coordinate descent on the codes and scales of a rounded matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

struct RefineOptions {
  int sweeps = 2;             // over all groups; 0 or more
  bool search_scales = true;  // false: codes only
  // Ways of rounding a row's group that are kept while its columns go by: a third trial, with the
  // best scale (K-best nearest plane). 1: none; to 4096.
  int64_t candidates = 1;

  // Throws UsageError naming field, value and bound.
  void validate() const;
};

// Lowers f = tr(G (W - Q) H (W - Q)^T) by sweeps over the groups of columns J (64 columns where a
// scale has more than 256). With D = W - Q and P = G D H, the best values of row i's group, all
// others fixed, are t = q + P_iJ H_JJ^-1 / G_ii, and other values q' cost G_ii z H_JJ z^T more than
// t does, z = t - q'. Tried are, for the present scale and for every scale near it that the format
// can store,
//   the nearest plane q'_i = round(t_i + sum_{k>i} L_ki z_k / L_ii), i descending, L L^T = H_JJ,
//   then one descent q'_i = round(t_i + sum_{k != i} H_ik z_k / H_ii);
// for integers also the scale that fits the best of these, c H t^T / c H c^T. A change is made
// where it lowers f in float64, so f never rises. G is the output factor of a Kronecker-factored
// curvature (Martens and Grosse 2015); without it rows are independent.
//   weight         [rows, cols] float32
//   hessian        [cols, cols] float32, symmetric, finite
//   output_factor  [rows, rows] float32, symmetric, positive semidefinite; null: the identity
// Inputs that are always zero count, also in f, with the mean of the others' diagonal. Throws
// NumericalError for an output factor that is not finite or not semidefinite, or a block of H that
// no damping makes so.
//   mask           [rows, cols], or null: where it is 0 the matrix holds zeros, and keeps them
// Returns f before and after each sweep, sweeps + 1 values. Independent of the number of threads.
std::vector<double> refine(const float* weight, const float* hessian, const float* output_factor,
                           QuantizedMatrix& matrix, const RefineOptions& options,
                           const uint8_t* mask = nullptr);

}  // namespace curvq
