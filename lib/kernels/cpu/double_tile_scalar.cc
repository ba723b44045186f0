#include <cmath>

#include "kernels/double_tile.h"

namespace curvq::internal {

void double_tile_scalar(int64_t depth, const double* a, int64_t lda, const double* b, double* c,
                        int64_t ldc) {
  for (int64_t i = 0; i < kDoubleTile; ++i) {
    for (int64_t j = 0; j < kDoubleTile; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum = std::fma(a[k * lda + i], b[k * 8 + j], sum);
      c[i * ldc + j] += sum;
    }
  }
}

}  // namespace curvq::internal
