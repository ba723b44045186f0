// What an instruction set does of products in float64. Plain data only, as in panel.h.
#pragma once

#include <cstdint>

namespace curvq::internal {

inline constexpr int64_t kDoubleTile = 8;

// c[i][j] += sum_k a[k][i] b[k][j], i and j below kDoubleTile, in the order of k and with fused
// multiply-adds; a [depth, 8] with row stride lda, b [depth, 8] dense, c with row stride ldc.
using DoubleTile = void(int64_t depth, const double* a, int64_t lda, const double* b, double* c,
                        int64_t ldc);

DoubleTile double_tile_scalar;
#if defined(__x86_64__)
DoubleTile double_tile_avx2;    // needs AVX2 and FMA
DoubleTile double_tile_avx512;  // needs AVX-512 F
#endif

DoubleTile* select_double_tile();  // of select_gemm_path()

}  // namespace curvq::internal
