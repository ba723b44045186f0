// Inner products of packed_gemm_int16 and packed_gemm_int8, one function for each instruction set.
// A block is a run of columns whose weights share a scale. For i < m and j < kIntegerColumns
//   out[i, j] (+)= x_scales[i] sum_b scales[b, j] sum_c x[i, b, c] w[b, j, c]             16 bits
//   out[i, j] (+)= sum_b x_scales[i, b] scales[b, j] sum_c (x[i, b, c] - 128) w[b, j, c]   8 bits
// Inner sums are exact integers, outer ones float32 in the order of b.
//
// The AVX files are compiled with flags of their own and include nothing that other files share, so
// that no function built for a newer machine is linked into the rest.
#pragma once

#include <cstdint>

namespace curvq::internal {

inline constexpr int64_t kIntegerColumns = 16;

template <class X, class W>
struct IntegerPanel {
  const X* x;  // row stride ldx, blocks one after the other
  int64_t ldx, m;
  const W* w;           // [blocks, lanes, kIntegerColumns, columns in a lane]: 2 of 16 bits, 4 of 8
  const float* scales;  // [blocks, kIntegerColumns]
  int64_t blocks, lanes;
  const float* x_scales;  // row stride x_scale_stride
  int64_t x_scale_stride;
  float* out;
  int64_t ldout;
  bool accumulate;  // add to out rather than write it
};

// Lanes are a multiple of 4 and at most 128: 256 products of 16 and 9 bits fit in 32.
using Int16Panel = IntegerPanel<int16_t, int16_t>;

// Lanes are 4 or 8, |w| at most 15: sums of a block fit in 16 bits for the even and odd pairs of
// columns by themselves.
struct Int8Panel : IntegerPanel<uint8_t, int8_t> {
  const int16_t* offsets;  // [blocks, kIntegerColumns, 2]: -128 sum w of the even and odd pairs
};

using Int16Tile = void(const Int16Panel& panel);
using Int8Tile = void(const Int8Panel& panel);

Int16Tile int16_tile_scalar;
Int8Tile int8_tile_scalar;
#if defined(__x86_64__)
Int16Tile int16_tile_avx2;         // needs AVX2 and FMA
Int16Tile int16_tile_avx512;       // needs AVX-512 F, BW
Int16Tile int16_tile_avx512_vnni;  // needs AVX-512 F, VNNI
Int8Tile int8_tile_avx2;           // needs AVX2 and FMA
Int8Tile int8_tile_avx512_vnni;    // needs AVX-512 F, BW, VNNI
#endif

}  // namespace curvq::internal
