// What XTrace and XDiag share: a sketch of H by probes, and for each probe the subspace that the
// others span (Epperly, Tropp, Webber 2024). The m samples, each with one probe held out, share
// almost all of their subspaces and so vary together: their spread says too little of the error of
// their mean. That of the m estimates with one probe left out altogether (their samples hold out
// another one) says enough: sqrt((m - 1) / m sum (f_i - f)^2), the jackknife, is on average no less
// than the error of an estimate from m - 1 probes (Efron and Stein 1981).
#pragma once

#include <torch/torch.h>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

// For m probes omega_i (rows): Y_i = H omega_i, Q orthonormal rows with the span of all Y_i. The
// Y_j, j != i, span that of Q without one direction, Q^T s_i.
struct HeldOutSketch {
  HeldOutSketch(LinearOperator& op, int64_t count, ProbeKind probe, torch::Generator generator);

  double epsilon;            // of the operator's dtype
  int64_t products = 0;      // computed
  bool complete = false;     // Q spans the range of H; the fields after `core` are not set
  torch::Tensor probes;      // [m, n] omega_i
  torch::Tensor images;      // [m, n] Y_i
  torch::Tensor q;           // [r, n]
  torch::Tensor hq;          // [r, n] Q H
  torch::Tensor core;        // [r, r] Q H Q^T; this and the rest float64 on the CPU
  torch::Tensor sketch;      // [m, m] row i: Q Y_i
  torch::Tensor inner;       // [m, m] row i: Q omega_i
  torch::Tensor directions;  // [m, m] row i: s_i
  torch::Tensor forms;       // [m] omega_i^T H omega_i
  torch::Tensor squares;     // [m] |omega_i|^2
};

}  // namespace curvq
