// What the W4A8 kernels read and are started with: MXFP4 weights, activations of E4M3 with a
// float32 scale a token. Read by nvcc and g++.
//
//   codes of w  [rows][k / 128][t 4][step 4] uint32: what lane 4 g + t gives to the tensor core for
//               columns 32 step ... 32 step + 31 of row g. Code j < 4 is column 4 t + j, j >= 4
//               column 16 + 4 t + j - 4: its magnitude in bits 4 j ... 4 j + 2, its sign in bit 8 j
//               + 7 or 8 (j - 4) + 3.
//   scales of w as in w4a4_layout.h
//   x           [rows][k / 128][128] E4M3
#pragma once

#include "kernels/cuda/w4a4_layout.h"

namespace curvq::cuda {

constexpr int kW4A8Tokens = 128, kW4A8Rows = 64, kW4A8Cols = 128;  // of a tile
constexpr int kW4A8CodeBytes = kW4A8Cols / 2;                      // of a row of w in a chunk

struct W4A8Args {
  const uint8_t* x;       // [m][chunks * 128]
  const float* x_scales;  // [m]
  const uint8_t* codes;
  const uint8_t* scales;
  uint16_t* out;      // [m, columns], row stride ldout
  const float* bias;  // [columns] or null
  int m, columns, chunks, ldout;
  int row_tiles, token_tiles;  // of w, of x
  bool wide_stores;            // out and ldout are multiples of 16 bytes
};

// Rounds x to E4M3 with a scale a row: round_inputs() of kFp8.
struct QuantizeRowsArgs {
  const uint16_t* x;  // [m, k], row stride ldx, a multiple of 8; 16-byte aligned
  uint8_t* codes;
  float* scales;
  int m, k, ldx, chunks;
};

}  // namespace curvq::cuda
