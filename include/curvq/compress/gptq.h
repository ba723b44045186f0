// GPTQ: rounding with error feedback through the inverse Hessian of the layer's output error.
#pragma once

#include <cstdint>
#include <string>

#include "curvq/compress/prepared_hessian.h"
#include "curvq/formats/quantized_matrix.h"

namespace curvq {

struct GptqOptions : DampingOptions {
  // Columns between two updates of all later columns; a matter of speed only. 1 or more.
  int64_t block_size = 128;
  ActOrder act_order = ActOrder::kStatic;
  // Lets each group (of at most 256 columns) take, instead of the scale it is given, the one near
  // it with which its rounding adds least to the objective. Groups then stay together in the order.
  // MXFP4 keeps its scales (refine() searches them).
  bool search_scales = false;

  // Throws UsageError naming field, value and bound.
  void validate() const;
};

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
//   mask    [rows, cols], or null: where it is 0, q_j is 0, a code that every scheme has, and the
//           others make up for it as for rounding
GptqResult gptq(const float* weight, const float* hessian, ScaleGrid grid,
                const GptqOptions& options, const std::string& layer,
                const uint8_t* mask = nullptr);

}  // namespace curvq
