// Rounding whole rows with several candidates kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "curvq/compress/prepared_hessian.h"
#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

// The different values of a scheme for one scale and zero point, ascending, and their codes.
class ValueTable {
 public:
  explicit ValueTable(const Scheme& scheme);

  int64_t size() const { return static_cast<int64_t>(codes_.size()); }
  // values [size()]; scales may be negative.
  void fill(float scale, int zero_point, float* values) const;
  uint8_t code(float scale, int64_t choice) const {
    return codes_[scale < 0 ? size() - 1 - choice : choice];
  }

 private:
  Scheme scheme_;
  std::vector<uint8_t> codes_;
};

// Rounds each row anew on the matrix's grid by KBest, and takes that where its loss is below
// losses [rows], sums of e^2, which are brought up to date.
//   kept  [cols, rows], 0: a weight that stays zero; empty: none
void choose_among_candidates(const float* weight, const PreparedHessian& prepared,
                             int64_t candidates, const std::vector<uint8_t>& kept,
                             QuantizedMatrix& matrix, std::vector<float>& losses);

// sum over the matrix of (gap / 2)^2 / U_jj^2, gap the widest between neighbours on the grid.
double nearest_plane_bound(const PreparedHessian& prepared, const ScaleGrid& grid);

}  // namespace curvq::internal
