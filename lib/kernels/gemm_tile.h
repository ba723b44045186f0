// The inner product of packed_gemm on rows that are already dequantized, one function for each
// instruction set:
//   out[i * ldout + j] = sum_k x[i * ldx + k] * w[j * k_size + k],   i < m, j < rows
// all float32. The order of each sum depends on k_size alone, not on m, rows or the tile.
//
// The AVX files are compiled with flags of their own and include nothing that other files share, so
// that no function built for a newer machine is linked into the rest.
#pragma once

#include <cstdint>

namespace curvq::internal {

using GemmTile = void(const float* x, int64_t ldx, int64_t m, const float* w, int64_t rows,
                      int64_t k_size, float* out, int64_t ldout);

GemmTile gemm_tile_scalar;
#if defined(__x86_64__)
GemmTile gemm_tile_avx2;    // needs AVX2 and FMA
GemmTile gemm_tile_avx512;  // needs AVX-512 F, BW, VL, DQ
#endif

}  // namespace curvq::internal
