#include "compress/panels.h"

#include <algorithm>

#include "kernels/double_tile.h"

namespace curvq::internal {

Panels::Panels(const double* values, int64_t rows, int64_t cols, int64_t ld) : Panels(rows, cols) {
  for (int64_t panel = 0; panel < count_; ++panel) {
    const int64_t first = panel * kWidth, width = std::min(kWidth, cols - first);
    for (int64_t k = 0; k < rows; ++k) std::copy_n(values + k * ld + first, width, at(panel, k));
  }
}

void add_panel_product(int64_t m, const double* a, int64_t lda, const Panels& b, int64_t begin,
                       int64_t end, double* c) {
  constexpr int64_t kDepth = 128;  // rows of a panel, and of a, that stay in the first-level cache
  static_assert(Panels::kWidth == kDoubleTile);
  DoubleTile* const tile = select_double_tile();
  const int64_t ldc = b.count() * Panels::kWidth;
  const int64_t width = (m + kDoubleTile - 1) / kDoubleTile * kDoubleTile,
                whole = m - m % kDoubleTile;
  std::vector<double> close(std::min(kDepth, end - begin) * width);  // of a, padded with zeros
  for (int64_t k = begin; k < end; k += kDepth) {
    const int64_t depth = std::min(kDepth, end - k);
    for (int64_t d = 0; d < depth; ++d)
      std::copy_n(a + (k - begin + d) * lda, m, close.data() + d * width);
    for (int64_t panel = 0; panel < b.count(); ++panel) {
      double* to = c + panel * Panels::kWidth;
      for (int64_t i = 0; i < whole; i += kDoubleTile)
        tile(depth, close.data() + i, width, b.at(panel, k), to + i * ldc, ldc);
      if (whole == m) continue;
      double rest[kDoubleTile * kDoubleTile] = {};
      tile(depth, close.data() + whole, width, b.at(panel, k), rest, kDoubleTile);
      for (int64_t i = whole; i < m; ++i)
        for (int64_t j = 0; j < kDoubleTile; ++j)
          to[i * ldc + j] += rest[(i - whole) * kDoubleTile + j];
    }
  }
}

}  // namespace curvq::internal
