// Products of a wide matrix with a few columns, which BLAS spends most of its time packing for.
#pragma once

#include <cstdint>
#include <vector>

namespace curvq::internal {

// A [rows, cols] float64 matrix in panels of 8 columns, padded with zeros: element (k, j) is at
// [j / 8][k][j % 8].
class Panels {
 public:
  static constexpr int64_t kWidth = 8;

  Panels(int64_t rows, int64_t cols)
      : rows_(rows), count_((cols + kWidth - 1) / kWidth), values_(count_ * rows * kWidth, 0.0) {}
  // Copies; row stride ld.
  Panels(const double* values, int64_t rows, int64_t cols, int64_t ld);

  int64_t rows() const { return rows_; }
  int64_t count() const { return count_; }
  // Row k of a panel, 8 values.
  double* at(int64_t panel, int64_t k) { return values_.data() + (panel * rows_ + k) * kWidth; }
  const double* at(int64_t panel, int64_t k) const {
    return values_.data() + (panel * rows_ + k) * kWidth;
  }

 private:
  int64_t rows_, count_;
  std::vector<double> values_;
};

// c [m, 8 count] += a^T b, over rows [begin, end) of b: a [end - begin, m], row stride lda.
void add_panel_product(int64_t m, const double* a, int64_t lda, const Panels& b, int64_t begin,
                       int64_t end, double* c);

}  // namespace curvq::internal
