#include "compress/panels.h"

#include <algorithm>

#include "formats/simd_clones.h"

namespace curvq::internal {
namespace {

constexpr int64_t kTile = 4;     // columns of a whose sums are in registers together
constexpr int64_t kDepth = 128;  // rows of a panel, and of a, that stay in the first-level cache
using Lanes = double __attribute__((vector_size(32), aligned(8), may_alias));

// c[i][0..8) += sum_k a[k][i] b[k][0..8), i < kTile; row strides lda, ldc.
CURVQ_SIMD_CLONES void tile(int64_t depth, const double* a, int64_t lda, const double* b, double* c,
                            int64_t ldc) {
  Lanes low0{}, low1{}, low2{}, low3{}, high0{}, high1{}, high2{}, high3{};
  for (int64_t k = 0; k < depth; ++k, a += lda, b += Panels::kWidth) {
    const Lanes low = *reinterpret_cast<const Lanes*>(b);
    const Lanes high = *reinterpret_cast<const Lanes*>(b + 4);
    low0 += a[0] * low, high0 += a[0] * high;
    low1 += a[1] * low, high1 += a[1] * high;
    low2 += a[2] * low, high2 += a[2] * high;
    low3 += a[3] * low, high3 += a[3] * high;
  }
  const auto add = [&](int64_t i, Lanes low, Lanes high) {
    *reinterpret_cast<Lanes*>(c + i * ldc) += low;
    *reinterpret_cast<Lanes*>(c + i * ldc + 4) += high;
  };
  add(0, low0, high0), add(1, low1, high1), add(2, low2, high2), add(3, low3, high3);
}

void edge(int64_t m, int64_t depth, const double* a, int64_t lda, const double* b, double* c,
          int64_t ldc) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < Panels::kWidth; ++j)
        c[i * ldc + j] += a[k * lda + i] * b[k * Panels::kWidth + j];
    }
  }
}

}  // namespace

Panels::Panels(const double* values, int64_t rows, int64_t cols, int64_t ld) : Panels(rows, cols) {
  for (int64_t panel = 0; panel < count_; ++panel) {
    const int64_t first = panel * kWidth, width = std::min(kWidth, cols - first);
    for (int64_t k = 0; k < rows; ++k) std::copy_n(values + k * ld + first, width, at(panel, k));
  }
}

void add_panel_product(int64_t m, const double* a, int64_t lda, const Panels& b, int64_t begin,
                       int64_t end, double* c) {
  const int64_t ldc = b.count() * Panels::kWidth;
  std::vector<double> close(std::min(kDepth, end - begin) * m);  // of a, without its stride
  for (int64_t k = begin; k < end; k += kDepth) {
    const int64_t depth = std::min(kDepth, end - k);
    for (int64_t d = 0; d < depth; ++d)
      std::copy_n(a + (k - begin + d) * lda, m, close.data() + d * m);
    for (int64_t panel = 0; panel < b.count(); ++panel) {
      double* to = c + panel * Panels::kWidth;
      int64_t i = 0;
      for (; i + kTile <= m; i += kTile)
        tile(depth, close.data() + i, m, b.at(panel, k), to + i * ldc, ldc);
      edge(m - i, depth, close.data() + i, m, b.at(panel, k), to + i * ldc, ldc);
    }
  }
}

}  // namespace curvq::internal
