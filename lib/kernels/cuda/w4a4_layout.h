// What the W4A4 kernels read and are started with. Read by nvcc and g++.
//
// An operand of `rows` rows and k columns is padded to chunks of 128 columns:
//   codes   [rows][k / 128][64]  E2M1, two a byte, the first column in the low bits
//   scales  [rows / 128][words][32][4] uint32: the words of 128 rows and four groups are 512 bytes,
//           row r at [r % 32][r / 32]; a word holds the scales of one row, the first group in the
//           low bits. cuBLASLt's and tcgen05's layout of block scales ("128x4").
// NVFP4 has two words of E4M3 a chunk (16 columns a scale), MXFP4 one of E8M0 (32).
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define CURVQ_HOST_DEVICE __host__ __device__
#else
#define CURVQ_HOST_DEVICE
#endif

namespace curvq::cuda {

enum class BlockScale { kE4M3, kE8M0 };

constexpr int kW4A4Rows = 128, kW4A4Cols = 128;  // of a tile of either operand
constexpr int kW4A4CodeBytes = kW4A4Cols / 2;    // of a row in a chunk
constexpr int kScaleTileBytes = 512;             // 128 rows by four groups

CURVQ_HOST_DEVICE constexpr int group_columns(BlockScale scale) {
  return scale == BlockScale::kE4M3 ? 16 : 32;
}
CURVQ_HOST_DEVICE constexpr int scale_words(BlockScale scale) {
  return kW4A4Cols / (4 * group_columns(scale));
}

// Of a row's scale in the layout above; `words` of four groups a row.
CURVQ_HOST_DEVICE constexpr int64_t scale_offset(int64_t row, int64_t group, int64_t words) {
  return (row / 128 * words + group / 4) * kScaleTileBytes + row % 32 * 16 + row % 128 / 32 * 4 +
         group % 4;
}

struct W4A4Operand {
  const uint8_t* codes;
  const uint8_t* scales;
  int rows;
};

struct W4A4Args {
  W4A4Operand x, w;
  uint16_t* out;      // [x.rows, w.rows], row stride ldout
  const float* bias;  // [w.rows] or null
  float alpha;        // what sums are multiplied with
  int chunks, ldout;
  int row_tiles, token_tiles;  // of w, of x
  bool wide_stores;            // out and ldout are multiples of 16 bytes
};

// Rounds x to an operand: round_inputs() of kNvfp4 or kMxfp4.
struct QuantizeArgs {
  const uint16_t* x;  // [m, k], row stride ldx, a multiple of 8; 16-byte aligned
  uint8_t* codes;
  uint8_t* scales;
  int m, k, ldx, chunks;
  float divisor;  // NVFP4's of the tensor
};

}  // namespace curvq::cuda
