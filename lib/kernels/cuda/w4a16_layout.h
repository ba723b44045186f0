// How the W4A16 kernels want a weight, and what they are started with. Read by nvcc and g++.
//
// A weight of `rows` rows (padded to 32) and k columns (padded to 64) is cut into chunks of 32 rows
// and 64 columns. A chunk's codes are 1024 bytes, those of one block of 32 rows contiguous along k:
//   codes [rows / 32][k / 64][half 2][lane 32][word 4] uint32
// Lane 4 g + t holds rows g, g + 8, g + 16, g + 24 of the chunk. Word 2 i + s of half h holds what
// the lane gives to the tensor core as operand A of rows 16 i ... 16 i + 15 in step 2 h + s: the
// pairs (row g, columns c, c+1), (g + 8; c, c+1), (g; c+2, c+3), (g + 8; c+2, c+3), c =
// first_column(). Bits inside the words lie so that few operations put them into place
// (w4a16_unpack.h). Scales and zero points of a chunk, or of the chunks that share them:
//   meta  [rows / 32][groups][kMetaBytes]
// In a pair (gate and up of SwiGLU) rows 16 j ... 16 j + 7 are eight rows of the gate, the next
// eight the same rows of up, so that both meet in one lane.
#pragma once

#include <cstdint>

namespace curvq::cuda {

// INT4 by whether scales change every 32 columns or every 64 or more.
enum class W4Format { kNvfp4, kMxfp4, kInt4Group32, kInt4Group64 };

constexpr int kChunkRows = 32, kChunkCols = 64, kChunkBytes = 1024;
constexpr int kBlockRows = 128;  // rows of a thread block: four warps
constexpr int kThreads = 128;

// Scales multiply the decoded weights where the product is exact, else the sums of a group.
constexpr bool scales_weights(W4Format format, bool f16) {
  return format == W4Format::kNvfp4 || (format == W4Format::kMxfp4 && !f16);
}

// Tiles of 8 tokens that a block computes. Sums of groups take registers of their own.
constexpr int token_tiles_for(W4Format format, bool f16, int64_t m) {
  return m <= 8 ? 1 : m <= 16 ? 2 : m <= 64 || !scales_weights(format, f16) ? 8 : 12;
}

// First of the four consecutive columns of a chunk that lane t multiplies in a step: k is summed
// over, so any order will do, and this one gives a lane 16-byte pieces of x of one scale group.
constexpr int first_column(W4Format format, int t, int step) {
  return format == W4Format::kNvfp4 ? 16 * t + 4 * step : 32 * (step / 2) + 8 * t + 4 * (step % 2);
}

// Within meta, for the rows 8 slot + g:
//   kNvfp4        byte [g][t][slot], E5M3: exponent + 22 and 3 bits of mantissa
//   kMxfp4        byte [g][half][slot], exponent + bias of the tensor
//   kInt4Group32  float [g][half][slot], then with zero points byte [g][half][slot]
//   kInt4Group64  float [g][slot], then with zero points byte [g][slot]; bytes are zero point + 8
constexpr int scale_bytes(W4Format format) {
  return format == W4Format::kMxfp4 ? 64 : format == W4Format::kInt4Group32 ? 256 : 128;
}
constexpr int meta_bytes(W4Format format, bool zero_points) {
  return scale_bytes(format) + (!zero_points ? 0 : format == W4Format::kInt4Group32 ? 64 : 32);
}

// Of an NVFP4 scale 2^e (1 + m/8), as E4M3 has it also where it is subnormal.
constexpr int kE5M3Bias = 22;
// Decoded NVFP4 weights are this times smaller.
constexpr float kNvfp4Unit = 0x1p-7f;

struct W4A16Args {
  const uint8_t* codes;
  const uint8_t* meta;
  const uint16_t* x;     // [m, k], row stride ldx, a multiple of 8; 16-byte aligned
  uint16_t* out;         // [m, columns], row stride ldout
  const float* bias[2];  // of each matrix of a pair, or null
  float alpha[2];        // what sums are multiplied with
  float* partial;        // split_workspace() floats where splits > 1
  uint32_t* tickets;     // one a tile, zero before and after
  int m, columns, k, ldx, ldout;
  int row_blocks;    // of 32 rows
  int chunks;        // along k
  int split_chunks;  // of each part of k, a multiple of the chunks of a stage
  int group_shift;   // log2 of the chunks that share a meta block
  int groups;        // meta blocks of a row block
  int meta_bytes;    // of each
  int row_tiles, token_tiles, splits;
  bool zero_points, pair, wide_stores;  // wide: out and ldout are multiples of 16 bytes
};

}  // namespace curvq::cuda
