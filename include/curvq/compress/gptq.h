// GPTQ: rounding with error feedback through the inverse Hessian of the layer's output error.
#pragma once

#include <cstdint>
#include <string>

#include "curvq/compress/prepared_hessian.h"
#include "curvq/formats/quantized_matrix.h"

namespace curvq {

// kPlane: the columns in order (GPTQ). kSaliency: within a block of columns the weight of a row
// whose rounding costs least by dw^2 / (2 [H^-1]_jj) comes next (Optimal Brain Surgeon: Hassibi and
// Stork 1992, Frantar and Alistarh 2022). Costs block_size times as much as kPlane.
enum class RoundingOrder { kPlane, kSaliency };

struct GptqOptions : DampingOptions {
  // Columns between two updates of all later columns; with kPlane a matter of speed only. 1 or
  // more.
  int64_t block_size = 128;
  ActOrder act_order = ActOrder::kStatic;
  RoundingOrder rounding_order = RoundingOrder::kPlane;
  // H without its correlations (Optimal Brain Damage: LeCun et al. 1990): a weight costs
  // H_jj dw^2 / 2 and moves no other, so that codes are the nearest ones and only the scales, with
  // search_scales, know of H.
  bool diagonal = false;
  // Of each row, how many ways of rounding it so far are kept while the columns go by (K-best
  // nearest plane). The scales are those that one candidate chose. Costs so many times as much as
  // one. 1 to 4096; kPlane only.
  int64_t candidates = 1;
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
  std::string raised_because;  // see PreparedHessian
  int64_t dead_inputs = 0;
  bool all_dead = false;  // no information: every weight was rounded to nearest
  // (W - Q) (H + damping) (W - Q)^T, summed over rows, and what the nearest plane cannot exceed
  // where no value was clipped: sum (gap / 2)^2 / U_jj^2, gap the widest between two values.
  double objective = 0, nearest_plane_bound = 0;
};

// Chooses codes on a fixed grid so that  tr((W - Q) H (W - Q)^T)  is small (Frantar et al. 2022):
// for each column j in order
//   q_j = round(w_j),  e = (w_j - q_j) / U_jj,  w_k -= e U_jk  for all later k.
//   weight  [rows, cols] float32, row-major, finite; not modified
//   hessian [cols, cols] float32, symmetric, e.g. 2/N sum x x^T; its scale does not matter
// The result does not depend on the number of threads. Deviations from the paper: the Cholesky
// factor of the inverse comes from one factorisation of the reversed Hessian; dead inputs keep
// their weights (rounded to nearest) and do not enter the damping.
//   inverse [cols, cols] of the damped Hessian up to a factor, got in another way; empty: by
//   Cholesky mask    [rows, cols], or null: where it is 0, q_j is 0, a code that every scheme has,
//   and the
//           others make up for it as for rounding
GptqResult gptq(const float* weight, const float* hessian, ScaleGrid grid,
                const GptqOptions& options, const std::string& layer, const uint8_t* mask = nullptr,
                const std::vector<double>& inverse = {});

}  // namespace curvq
