// out = x W^T, x of E4M3 with a scale a token, W of MXFP4: mma.sync m16n8k32 with block scales
// (capability 12.x). E2M1 codes become E4M3 by a table of eight bytes, exactly. A block of four
// warps computes 128 tokens by 64 rows of W, each warp 64 by 32, those of rows as in w4a4_kernel.h.
#pragma once

#include "kernels/cuda/w4a4_kernel.h"
#include "kernels/cuda/w4a8_layout.h"

namespace curvq::cuda {

template <bool kF16_>
struct W4A8Config {
  static constexpr bool kF16 = kF16_;
  static constexpr int kThreads = 128;
  static constexpr int kStages = 2, kMinBlocks = 2;

  // Shared memory: stages of [x, codes of w, scales of 128 rows of w].
  static constexpr uint32_t kXBytes = kW4A8Tokens * kW4A8Cols;
  static constexpr uint32_t kCodeBytes = kW4A8Rows * kW4A8CodeBytes;
  static constexpr uint32_t kStageBytes = kXBytes + kCodeBytes + kScaleTileBytes;
  // Afterwards the output tile; 16 bytes a row more keep rows of it in different banks.
  static constexpr uint32_t kOutRowBytes = kW4A8Rows * 2 + 16;
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes;
  static_assert(kW4A8Tokens * kOutRowBytes <= kSharedBytes);

  // Rows of x are 128 bytes, eight pieces of 16, exchanged so that ldmatrix, which reads one piece
  // of eight rows, meets each bank once.
  SIMT_DEVICE static uint32_t x_offset(int row, int piece) {
    return static_cast<uint32_t>(row * kW4A8Cols + (piece ^ row % 8) * 16);
  }
};

// Copies a thread's part of the chunks, one after another. Rows past the end repeat the last one,
// and nobody stores what comes of them.
template <class C>
struct W4A8Loader {
  static constexpr int kXRows = C::kThreads / 8, kCodeRows = C::kThreads / 4;  // at once

  const uint8_t* x;
  const uint8_t* codes;
  const uint8_t* scales;
  int row_bytes, left_tokens, left_rows;  // to the last; negative where past it
  uint32_t x_to, code_to, scale_to;

  SIMT_DEVICE W4A8Loader(const W4A8Args& p, int token_tile, int row_tile) {
    const int tid = simt::thread_index();
    const int token = token_tile * kW4A8Tokens + tid / 8, row = row_tile * kW4A8Rows + tid / 4;
    row_bytes = p.chunks * kW4A8CodeBytes;
    left_tokens = p.m - 1 - token;
    left_rows = p.columns - 1 - row;
    x = p.x + static_cast<int64_t>(token) * (2 * row_bytes) + tid % 8 * 16;
    codes = p.codes + static_cast<int64_t>(row) * row_bytes + tid % 4 * 16;
    scales = p.scales + static_cast<int64_t>(row_tile / 2) * p.chunks * kScaleTileBytes + tid * 16;
    x_to = C::x_offset(tid / 8, tid % 8);
    code_to = C::kXBytes + static_cast<uint32_t>(tid * 16);
    scale_to = C::kXBytes + C::kCodeBytes + static_cast<uint32_t>(tid * 16);
  }

  SIMT_DEVICE void next(uint32_t stage) {
    using namespace simt;
    SIMT_UNROLL
    for (int i = 0; i < kW4A8Tokens / kXRows; ++i) {
      const int row = i * kXRows;
      const int64_t step = static_cast<int64_t>(row < left_tokens ? row : left_tokens) * row_bytes;
      cp_async<16>(stage + x_to + static_cast<uint32_t>(row * kW4A8Cols), x + 2 * step, 16);
    }
    SIMT_UNROLL
    for (int i = 0; i < kW4A8Rows / kCodeRows; ++i) {
      const int row = i * kCodeRows;
      const int64_t step = static_cast<int64_t>(row < left_rows ? row : left_rows) * row_bytes;
      cp_async<16>(stage + code_to + static_cast<uint32_t>(row * kW4A8CodeBytes), codes + step, 16);
    }
    if (thread_index() * 16 < kScaleTileBytes) cp_async<16>(stage + scale_to, scales, 16);
    x += kW4A8Cols;
    codes += kW4A8CodeBytes;
    scales += kScaleTileBytes;
  }
};

// Eight codes as E4M3: 0 .5 1 1.5 | 2 3 4 6, and their signs.
SIMT_DEVICE void e2m1_to_e4m3(uint32_t word, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kFirst = 0x3c383000u, kSecond = 0x4c484440u, kSigns = 0x80808080u;
  const uint32_t magnitudes = word & 0x77777777u;
  low = simt::prmt(kFirst, kSecond, magnitudes) | (word & kSigns);
  high = simt::prmt(kFirst, kSecond, magnitudes >> 16) | (word << 4 & kSigns);
}

// Adds the products of 32 columns of a chunk: sums[i][2 j + h], tokens 32 i and rows of W 32 j + 8
// h of the warp's.
template <class C, int kStep>
SIMT_DEVICE void multiply_step(uint32_t x, int warp_x, const uint32_t (&codes)[4],
                               const uint32_t (&scales)[2], float (&sums)[4][4][4]) {
  using namespace simt;
  constexpr uint32_t kOnes = 0x7f7f7f7fu;  // tokens are scaled afterwards
  const int lane = thread_index() % 32;
  uint32_t low[4], high[4];
  SIMT_UNROLL
  for (int n = 0; n < 4; ++n) e2m1_to_e4m3(codes[n], low[n], high[n]);
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint32_t a[4];
    ldmatrix_x4(a,
                x + C::x_offset(32 * i + warp_x + operand_row(lane % 16), 2 * kStep + lane / 16));
    SIMT_UNROLL
    for (int j = 0; j < 2; ++j) {
      mma_mxfp8<kStep, 0>(sums[i][2 * j], a, low[2 * j], high[2 * j], kOnes, scales[j]);
      mma_mxfp8<kStep, 1>(sums[i][2 * j + 1], a, low[2 * j + 1], high[2 * j + 1], kOnes, scales[j]);
    }
  }
}

template <class C>
SIMT_DEVICE void multiply_chunk(uint32_t x, int warp_x, int warp_w, bool second_half,
                                float (&sums)[4][4][4]) {
  using namespace simt;
  const int lane = thread_index() % 32, g = lane / 4, t = lane % 4;
  const uint32_t w = x + C::kXBytes;
  const U32x4 all = lds<U32x4>(w + C::kCodeBytes +
                               static_cast<uint32_t>((warp_w + operand_row(g + 8 * (t % 2))) * 16));
  const uint32_t scales[2] = {second_half ? all.z : all.x, second_half ? all.w : all.y};
  U32x4 words[4];
  SIMT_UNROLL
  for (int n = 0; n < 4; ++n) {
    const int row = 32 * (n / 2) + warp_w + operand_row(8 * (n % 2) + g);
    words[n] = lds<U32x4>(w + static_cast<uint32_t>(row * kW4A8CodeBytes + t * 16));
  }
  const uint32_t steps[4][4] = {{words[0].x, words[1].x, words[2].x, words[3].x},
                                {words[0].y, words[1].y, words[2].y, words[3].y},
                                {words[0].z, words[1].z, words[2].z, words[3].z},
                                {words[0].w, words[1].w, words[2].w, words[3].w}};
  multiply_step<C, 0>(x, warp_x, steps[0], scales, sums);
  multiply_step<C, 1>(x, warp_x, steps[1], scales, sums);
  multiply_step<C, 2>(x, warp_x, steps[2], scales, sums);
  multiply_step<C, 3>(x, warp_x, steps[3], scales, sums);
}

// Scales tokens, adds the bias, rounds, and stores rows of out through shared memory.
template <class C>
SIMT_DEVICE void store_sums(const W4A8Args& p, int row_tile, int token_tile, int warp_x, int warp_w,
                            const float (&sums)[4][4][4]) {
  using namespace simt;
  const int g = thread_index() % 32 / 4, t = thread_index() % 4;
  SIMT_UNROLL
  for (int i = 0; i < 4; ++i) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = 32 * i + warp_x + operand_row(8 * half + g);
      const int token = token_tile * kW4A8Tokens + row;
      const float scale = token < p.m ? ldg(p.x_scales + token) : 0.0f;
      SIMT_UNROLL
      for (int n = 0; n < 4; ++n) {
        const int column = 32 * (n / 2) + warp_w + operand_row(8 * (n % 2) + 2 * t);
        const int at = row_tile * kW4A8Rows + column;
        const float bias0 = p.bias != nullptr && at < p.columns ? ldg(p.bias + at) : 0.0f;
        const float bias1 = p.bias != nullptr && at + 1 < p.columns ? ldg(p.bias + at + 1) : 0.0f;
        const float* s = &sums[i][n][2 * half];
        const uint32_t low = round_output<C::kF16>(s[0] * scale + bias0);
        const uint32_t high = round_output<C::kF16>(s[1] * scale + bias1);
        sts(static_cast<uint32_t>(row) * C::kOutRowBytes + static_cast<uint32_t>(column * 2),
            low | high << 16);
      }
    }
  }
  sync_block();
  store_rows<kW4A8Tokens, kW4A8Rows, C::kOutRowBytes, C::kThreads>(p, token_tile * kW4A8Tokens, p.m,
                                                                   row_tile * kW4A8Rows, p.columns);
}

template <class C>
SIMT_KERNEL void SIMT_BOUNDS(C::kThreads, C::kMinBlocks) w4a8_kernel(W4A8Args p) {
  using namespace simt;
  // Neighbouring blocks take the tokens of the same rows of W, which then come from the cache.
  const int row_tile = block_x() / p.token_tiles, token_tile = block_x() % p.token_tiles;
  const int warp = thread_index() / 32, warp_x = warp % 2 * 16, warp_w = warp / 2 * 16;
  float sums[4][4][4] = {};

  W4A8Loader<C> loader(p, token_tile, row_tile);
  int to_load = p.chunks;
  SIMT_UNROLL
  for (int s = 0; s < C::kStages - 1; ++s) {
    if (to_load-- > 0) loader.next(s * C::kStageBytes);
    cp_async_commit();
  }
  uint32_t use = 0, fill = (C::kStages - 1) * C::kStageBytes;
  SIMT_NO_UNROLL
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    cp_async_wait<C::kStages - 2>();
    sync_block();  // this stage is there for all, and all are done with the one filled next
    if (to_load-- > 0) loader.next(fill);
    cp_async_commit();
    multiply_chunk<C>(use, warp_x, warp_w, row_tile % 2 == 1, sums);
    use = use + C::kStageBytes == C::kStages * C::kStageBytes ? 0 : use + C::kStageBytes;
    fill = fill + C::kStageBytes == C::kStages * C::kStageBytes ? 0 : fill + C::kStageBytes;
  }
  cp_async_wait<0>();
  sync_block();
  store_sums<C>(p, row_tile, token_tile, warp_x, warp_w, sums);
}

constexpr int kQuantizeRowWarps = 4;  // a row each

template <bool kF16>
SIMT_KERNEL void SIMT_BOUNDS(kQuantizeRowWarps * 32, 4) quantize_rows_kernel(QuantizeRowsArgs p) {
  using namespace simt;
  const int lane = thread_index() % 32, row = block_x() * kQuantizeRowWarps + thread_index() / 32;
  if (row >= p.m) return;
  const uint16_t* x = p.x + static_cast<int64_t>(row) * p.ldx;
  const auto load = [&](int column, float(&values)[8]) {
    U32x4 words = {0, 0, 0, 0};
    if (column + 8 <= p.k) words = ldg(reinterpret_cast<const U32x4*>(x + column));
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t pair = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
      const uint32_t bits = i % 2 == 0 ? pair & 0xffffu : pair >> 16;
      values[i] = kF16 ? from_f16(static_cast<uint16_t>(bits)) : as_float(bits << 16);
    }
  };
  float values[8];
  uint32_t largest = 0;  // the bits of the largest magnitude, which for NaN are the largest of all
  for (int column = lane * 8; column < p.k; column += 32 * 8) {
    load(column, values);
    SIMT_UNROLL
    for (const float value : values) {
      const uint32_t magnitude = as_bits(value) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  SIMT_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    const uint32_t other = shfl_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  float scale = as_float(largest) / 448.0f;  // not finite: some code becomes NaN
  if (scale == 0.0f) scale = 0x1p-23f;       // of zeros
  if (lane == 0) stg(p.scales + row, scale);
  for (int column = lane * 8; column < p.chunks * kW4A8Cols; column += 32 * 8) {
    load(column, values);
    uint32_t codes[2] = {};
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) codes[i / 4] |= to_e4m3(values[i] / scale) << i % 4 * 8;
    stg(reinterpret_cast<U32x2*>(p.codes + static_cast<int64_t>(row) * (p.chunks * kW4A8Cols) +
                                 column),
        U32x2{codes[0], codes[1]});
  }
}

}  // namespace curvq::cuda
