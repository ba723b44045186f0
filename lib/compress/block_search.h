// The search for better values of a group of columns, a strip of rows at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/k_best.h"
#include "compress/lanes.h"
#include "compress/row_candidates.h"
#include "compress/scale_candidates.h"
#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

// Columns [begin, begin + size), J, with what they need of H.
struct ColumnBlock {
  int64_t begin = 0, size = 0;
  std::vector<double> hessian;  // H_JJ, row-major
  std::vector<double> factor;   // L of H_JJ (+ 1e-6 of the mean diagonal)
  // [size, size] of a column i and another k, by which k's distance moves i's: -L_ki / L_ii with k
  // > i, -H_ik / H_ii with k != i (0 where H_ii is), and -H_ik.
  std::vector<float> plane_shares, descent_shares, negated_hessian;
  std::vector<float> upper;  // U^T U = (H_JJ + damping)^-1, for KBest; empty where it is not used
};

// One block a group, or 64 columns where a scale has more than 256. h [cols, cols].
//   candidates  above 1: with `upper`
std::vector<ColumnBlock> make_column_blocks(const Scheme& scheme, const std::vector<double>& h,
                                            int64_t cols, int64_t candidates);

// For rows [first, first + kStrip) of a matrix, or those it has. Arrays are [column][kStrip].
class BlockSearch {
 public:
  //   kept  [cols, rows], 0: a value that stays zero; empty: none
  //   most  of the ways of rounding a row's block that are kept; 1: only the nearest plane
  BlockSearch(QuantizedMatrix& matrix, const ScaleCandidates& candidates,
              const std::vector<uint8_t>& kept, int64_t first, int64_t most);

  // Tries for each row what refine() says, the target being t = q + shift H_JJ^-1.
  //   shift  [size][kStrip]
  void search(const ColumnBlock& block, const double* shift, bool scales);

  // The values that search() found minus those in the matrix.
  double change(int64_t column, int64_t row) const {
    return static_cast<double>(best_rounded_[column * kStrip + row]) -
           static_cast<double>(present_[column * kStrip + row]);
  }
  // Puts what search() found for a row of the strip into the matrix.
  void accept(const ColumnBlock& block, int64_t row);

  int64_t first() const { return first_; }
  int64_t count() const { return count_; }

 private:
  struct Trial {
    std::vector<StoredScale> scales;
    std::vector<float> values;
  };

  Trial trial_of(std::vector<StoredScale> scales) const;
  void prepare(const ColumnBlock& block, const double* shift);
  void round_column(const ColumnBlock& block, int64_t j, const Trial& trial);
  void nearest_plane(const ColumnBlock& block, const Trial& trial);
  void descend(const ColumnBlock& block, const Trial& trial);
  void keep_best(const ColumnBlock& block, const Trial& trial, bool first);
  void refit(const ColumnBlock& block);
  void keep_many(const ColumnBlock& block);

  QuantizedMatrix& matrix_;
  const ScaleCandidates& candidates_;
  const std::vector<uint8_t>& kept_;
  int64_t first_, count_, most_;
  const ValueTable table_;
  // Of the block at hand.
  std::vector<float> present_, target_, rounded_, distance_, best_rounded_, column_;
  std::vector<float> loss_, best_loss_;
  std::vector<uint8_t> codes_, best_codes_;
  std::vector<int8_t> zero_points_;
  std::vector<StoredScale> present_scales_, best_scales_;
};

}  // namespace curvq::internal
