// The inner product of packed_gemm with activations of 16 bits, one function for each instruction
// set. A block is a run of columns whose weights share a scale; `pairs` is half its length, a multiple of 4.
//   out[i, j] (+)= x_scales[i] sum_b scales[b, j] sum_{p < 2 pairs} x[i, b, p] w[b, j, p]
// for i < m and j < kInt16Columns. Inner sums are exact in 32 bits, outer ones float32 in the order
// of b. Memory:
//   x       int16, row stride ldx, blocks one after the other
//   w       int16 [blocks, pairs, kInt16Columns, 2]
//   scales  float32 [blocks, kInt16Columns]
// As in gemm_tile.h, files for newer machines share no inline functions with others.
#pragma once

#include <cstdint>

namespace curvq::internal {

inline constexpr int64_t kInt16Columns = 16;

struct Int16Panel {
  const int16_t* x;
  int64_t ldx, m;
  const int16_t* w;
  const float* scales;
  int64_t blocks, pairs;
  const float* x_scales;  // stride x_scale_stride
  int64_t x_scale_stride;
  float* out;
  int64_t ldout;
  bool accumulate;  // add to out rather than write it
};

using Int16Tile = void(const Int16Panel& panel);

Int16Tile int16_tile_scalar;
#if defined(__x86_64__)
Int16Tile int16_tile_avx2;         // needs AVX2 and FMA
Int16Tile int16_tile_avx512;       // needs AVX-512 F, BW
Int16Tile int16_tile_avx512_vnni;  // needs AVX-512 F, VNNI
#endif

}  // namespace curvq::internal
