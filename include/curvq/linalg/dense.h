// Products of dense row-major matrices, on LibTorch's BLAS.
#pragma once

#include <cstdint>

namespace curvq {

// c += alpha a^T b, all float32 or all float64, row-major with row strides lda, ldb, ldc.
//   a [k, m], b [k, n], c [m, n]
void add_product_transposed(int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                            int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc);
void add_product_transposed(int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                            int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc);

}  // namespace curvq
