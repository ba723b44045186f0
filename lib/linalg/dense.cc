#include "curvq/linalg/dense.h"

#include "linalg/blas.h"

namespace curvq {

void add_product_transposed(int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                            int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc) {
  if (m == 0 || n == 0 || k == 0) return;
  // In BLAS's column-major view the row-major matrices are transposed: c^T += alpha b^T a.
  const int rows = static_cast<int>(n), cols = static_cast<int>(m), depth = static_cast<int>(k);
  const int ld_b = static_cast<int>(ldb), ld_a = static_cast<int>(lda),
            ld_c = static_cast<int>(ldc);
  const float one = 1.0f;
  sgemm_("N", "T", &rows, &cols, &depth, &alpha, b, &ld_b, a, &ld_a, &one, c, &ld_c);
}

void add_product_transposed(int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                            int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc) {
  if (m == 0 || n == 0 || k == 0) return;
  // In BLAS's column-major view the row-major matrices are transposed: c^T += alpha b^T a.
  const int rows = static_cast<int>(n), cols = static_cast<int>(m), depth = static_cast<int>(k);
  const int ld_b = static_cast<int>(ldb), ld_a = static_cast<int>(lda),
            ld_c = static_cast<int>(ldc);
  const double one = 1.0;
  dgemm_("N", "T", &rows, &cols, &depth, &alpha, b, &ld_b, a, &ld_a, &one, c, &ld_c);
}

}  // namespace curvq
