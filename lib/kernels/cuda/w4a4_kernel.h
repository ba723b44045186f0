// out = x W^T, both of 4 bits with a scale a block: mma.sync m16n8k64 with block scales (capability
// 12.x), fed by cp.async and ldmatrix without any unpacking. A block of four warps computes 128
// tokens by 128 rows of W, each warp 64 by 64: the tokens whose number modulo 32 lies in its 16,
// and of W alike, because one 16-byte load of the scales' layout gives rows r, r + 32, r + 64, r
// + 96.
#pragma once

#include "kernels/cuda/w4a16_unpack.h"
#include "kernels/cuda/w4a4_layout.h"

namespace curvq::cuda {

template <BlockScale kScale_, bool kF16_>
struct W4A4Config {
  static constexpr BlockScale kScale = kScale_;
  static constexpr bool kF16 = kF16_;
  static constexpr int kThreads = 128;
  // Two blocks of two stages fill the 100 KiB and the registers of a multiprocessor.
  static constexpr int kStages = 2, kMinBlocks = 2;

  // Shared memory: stages of [codes of x, scales of x, codes of w, scales of w].
  static constexpr uint32_t kCodeBytes = kW4A4Rows * kW4A4CodeBytes;
  static constexpr uint32_t kScaleBytes = scale_words(kScale) * kScaleTileBytes;
  static constexpr uint32_t kOperandBytes = kCodeBytes + kScaleBytes;
  static constexpr uint32_t kStageBytes = 2 * kOperandBytes;
  // Afterwards the output tile; 16 bytes a row more keep rows of it in different banks.
  static constexpr uint32_t kOutRowBytes = kW4A4Rows * 2 + 16;
  static constexpr uint32_t kOutBytes = kW4A4Rows * kOutRowBytes;
  static constexpr uint32_t kSharedBytes =
      kStages * kStageBytes > kOutBytes ? kStages* kStageBytes : kOutBytes;

  // Rows of codes are 64 bytes, four pieces of 16: exchanged so that ldmatrix, which reads one
  // piece of eight rows, meets each bank once.
  SIMT_DEVICE static uint32_t code_offset(int row, int piece) {
    return static_cast<uint32_t>(row * kW4A4CodeBytes + ((piece ^ (row / 2 % 4)) * 16));
  }
};

// Copies a thread's part of one operand's chunks, one after another. Rows past the end repeat the
// last one, and nobody stores what comes of them.
template <class C>
struct W4A4Loader {
  static constexpr int kPieces = kW4A4CodeBytes / 16;        // of a row
  static constexpr int kRowsAtOnce = C::kThreads / kPieces;  // 32
  static constexpr int kScalePieces = C::kScaleBytes / 16;   // of a chunk
  static_assert(C::kThreads % kScalePieces == 0 && kRowsAtOnce % 8 == 0);

  const uint8_t* codes;
  const uint8_t* scales;
  int row_bytes, left_rows;
  uint32_t code_to, scale_to;
  bool copies_scales;

  // `first_scale_thread`: the operands' scales go to different threads.
  SIMT_DEVICE W4A4Loader(const W4A4Operand& operand, int chunks, int tile, uint32_t to,
                         int first_scale_thread) {
    const int tid = simt::thread_index(), row = tid / kPieces, piece = tid % kPieces;
    const int scale_piece = tid - first_scale_thread;
    row_bytes = chunks * kW4A4CodeBytes;
    left_rows = operand.rows - 1 - tile * kW4A4Rows - row;  // to the last; negative where past it
    codes = operand.codes + static_cast<int64_t>(tile * kW4A4Rows + row) * row_bytes + piece * 16;
    code_to = to + C::code_offset(row, piece);
    copies_scales = scale_piece >= 0 && scale_piece < kScalePieces;
    scales =
        operand.scales + static_cast<int64_t>(tile) * chunks * C::kScaleBytes + scale_piece * 16;
    scale_to = to + C::kCodeBytes + static_cast<uint32_t>(scale_piece * 16);
  }

  SIMT_DEVICE void next(uint32_t stage) {
    using namespace simt;
    SIMT_UNROLL
    for (int i = 0; i < kW4A4Rows / kRowsAtOnce; ++i) {
      const int row = i * kRowsAtOnce;
      const int64_t step = static_cast<int64_t>(row < left_rows ? row : left_rows) * row_bytes;
      cp_async<16>(stage + code_to + static_cast<uint32_t>(row * kW4A4CodeBytes), codes + step, 16);
    }
    if (copies_scales) cp_async<16>(stage + scale_to, scales, 16);
    codes += kW4A4CodeBytes;
    scales += C::kScaleBytes;
  }
};

// Which of the warp's 16 rows (modulo 32) is row 0 ... 15 of a tensor core's operand: 4 ... 7 and
// 0 ... 3 exchanged in the second half let the eight lanes that read scales together meet each bank
// once.
SIMT_DEVICE int operand_row(int row) { return row ^ (row / 8 * 4); }

// One of four words.
SIMT_DEVICE uint32_t word_of(const simt::U32x4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

template <class C, int kStep, int kLaneB>
SIMT_DEVICE void mma_block_scaled(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                  uint32_t sa, uint32_t sb) {
  if constexpr (C::kScale == BlockScale::kE4M3)
    simt::mma_nvfp4<0, kLaneB>(d, a, b0, b1, sa, sb);
  else
    simt::mma_mxfp4<2 * kStep, kLaneB>(d, a, b0, b1, sa, sb);
}

// Adds the products of 64 columns of a chunk in shared memory. sums[i][2 j + h]: tokens 32 i and
// rows of W 32 j + 8 h of the warp's.
template <class C, int kStep>
SIMT_DEVICE void multiply_step(uint32_t x, uint32_t w, int warp_x, int warp_w,
                               float (&sums)[4][8][4]) {
  using namespace simt;
  const int lane = thread_index() % 32;
  // Lanes 4 g and 4 g + 1 of the tensor core's operands have the scales of rows g and g + 8.
  const uint32_t scale = static_cast<uint32_t>(operand_row(lane / 4 + 8 * (lane % 2)) * 16);
  constexpr uint32_t kScales =
      C::kCodeBytes + (C::kScale == BlockScale::kE4M3 ? kStep * kScaleTileBytes : 0);
  const U32x4 x_scales = lds<U32x4>(x + kScales + static_cast<uint32_t>(warp_x * 16) + scale);
  const U32x4 w_scales = lds<U32x4>(w + kScales + static_cast<uint32_t>(warp_w * 16) + scale);
  uint32_t a[4][4];
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i)
    ldmatrix_x4(
        a[i], x + C::code_offset(32 * i + warp_x + operand_row(lane % 16), 2 * kStep + lane / 16));
  SIMT_UNROLL
  for (int j = 0; j < 4; ++j) {
    uint32_t b[4];  // two tiles of eight rows, two halves of 32 columns each
    const int row = 32 * j + warp_w + operand_row(lane % 8 + lane / 16 * 8);
    ldmatrix_x4(b, w + C::code_offset(row, 2 * kStep + lane / 8 % 2));
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t sa = word_of(x_scales, i), sb = word_of(w_scales, j);
      mma_block_scaled<C, kStep, 0>(sums[i][2 * j], a[i], b[0], b[1], sa, sb);
      mma_block_scaled<C, kStep, 1>(sums[i][2 * j + 1], a[i], b[2], b[3], sa, sb);
    }
  }
}

// A tile of outputs in shared memory, rows kRowBytes apart, into p.out [rows, columns].
template <int kRows, int kColumns, uint32_t kRowBytes, int kThreads, class Args>
SIMT_DEVICE void store_rows(const Args& p, int first_row, int rows, int first_column, int columns) {
  using namespace simt;
  constexpr int kPieces = kColumns / 8;  // of 16 bytes, a row
  for (int at = thread_index(); at < kRows * kPieces; at += kThreads) {
    const int row = first_row + at / kPieces, column = first_column + at % kPieces * 8;
    if (row >= rows) break;
    const uint32_t from = static_cast<uint32_t>(at / kPieces) * kRowBytes + at % kPieces * 16;
    uint16_t* to = p.out + static_cast<int64_t>(row) * p.ldout + column;
    if (p.wide_stores && column + 8 <= columns) {
      stg(reinterpret_cast<U32x4*>(to), lds<U32x4>(from));
    } else {
      for (int e = 0; e < 8 && column + e < columns; ++e) stg(to + e, lds<uint16_t>(from + 2 * e));
    }
  }
}

// Scales, adds the bias, rounds, and stores rows of out through shared memory.
template <class C>
SIMT_DEVICE void store_sums(const W4A4Args& p, int row_tile, int token_tile, int warp_x, int warp_w,
                            const float (&sums)[4][8][4]) {
  using namespace simt;
  const int g = thread_index() % 32 / 4, t = thread_index() % 4;
  SIMT_UNROLL
  for (int n = 0; n < 8; ++n) {
    const int column = 32 * (n / 2) + warp_w + operand_row(8 * (n % 2) + 2 * t);
    float bias[2] = {};
    SIMT_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int at = row_tile * kW4A4Rows + column + e;
      if (p.bias != nullptr && at < p.w.rows) bias[e] = ldg(p.bias + at);
    }
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = 32 * i + warp_x + operand_row(8 * half + g);
        const float* s = &sums[i][n][2 * half];
        const uint32_t low = round_output<C::kF16>(s[0] * p.alpha + bias[0]);
        const uint32_t high = round_output<C::kF16>(s[1] * p.alpha + bias[1]);
        sts(static_cast<uint32_t>(row) * C::kOutRowBytes + static_cast<uint32_t>(column * 2),
            low | high << 16);
      }
    }
  }
  sync_block();
  store_rows<kW4A4Rows, kW4A4Rows, C::kOutRowBytes, C::kThreads>(
      p, token_tile * kW4A4Rows, p.x.rows, row_tile * kW4A4Rows, p.w.rows);
}

template <class C>
SIMT_KERNEL void SIMT_BOUNDS(C::kThreads, C::kMinBlocks) w4a4_kernel(W4A4Args p) {
  using namespace simt;
  // Neighbouring blocks take the tokens of the same rows of W, which then come from the cache.
  const int row_tile = block_x() / p.token_tiles, token_tile = block_x() % p.token_tiles;
  const int warp = thread_index() / 32, warp_x = warp % 2 * 16, warp_w = warp / 2 * 16;
  float sums[4][8][4] = {};

  W4A4Loader<C> load_x(p.x, p.chunks, token_tile, 0, 0);
  W4A4Loader<C> load_w(p.w, p.chunks, row_tile, C::kOperandBytes, C::kThreads / 2);
  int to_load = p.chunks;
  SIMT_UNROLL
  for (int s = 0; s < C::kStages - 1; ++s) {
    if (to_load-- > 0) {
      load_x.next(s * C::kStageBytes);
      load_w.next(s * C::kStageBytes);
    }
    cp_async_commit();
  }
  uint32_t use = 0, fill = (C::kStages - 1) * C::kStageBytes;
  SIMT_NO_UNROLL
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    cp_async_wait<C::kStages - 2>();
    sync_block();  // this stage is there for all, and all are done with the one filled next
    if (to_load-- > 0) {
      load_x.next(fill);
      load_w.next(fill);
    }
    cp_async_commit();
    multiply_step<C, 0>(use, use + C::kOperandBytes, warp_x, warp_w, sums);
    multiply_step<C, 1>(use, use + C::kOperandBytes, warp_x, warp_w, sums);
    use = use + C::kStageBytes == C::kStages * C::kStageBytes ? 0 : use + C::kStageBytes;
    fill = fill + C::kStageBytes == C::kStages * C::kStageBytes ? 0 : fill + C::kStageBytes;
  }
  cp_async_wait<0>();
  sync_block();
  store_sums<C>(p, row_tile, token_tile, warp_x, warp_w, sums);
}

}  // namespace curvq::cuda
