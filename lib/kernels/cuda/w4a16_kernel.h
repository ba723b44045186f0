// out = x W^T, W of 4 bits, x and out of 16: mma.sync m16n8k16 with the weights as operand A, so
// that few tokens (8 a tile) fill it, fed by cp.async. A block of four warps computes 128 rows of W
// for 8 kTokenTiles tokens; each warp decodes 32 rows, once. See w4a16_layout.h.
#pragma once

#include "kernels/cuda/w4a16_unpack.h"

namespace curvq::cuda {

// kTokenTiles: tiles of 8 tokens; kStageChunks: chunks of 64 columns that are copied together;
// kStages: copies under way, and one being used; kMinBlocks: blocks a multiprocessor shall hold.
template <W4Format kFormat_, bool kF16_, int kTokenTiles_, int kStageChunks_, int kStages_,
          int kMinBlocks_>
struct W4A16Config {
  static constexpr W4Format kFormat = kFormat_;
  static constexpr bool kF16 = kF16_;
  static constexpr int kTokenTiles = kTokenTiles_, kStageChunks = kStageChunks_, kStages = kStages_,
                       kMinBlocks = kMinBlocks_;

  static constexpr bool kInteger =
      kFormat == W4Format::kInt4Group32 || kFormat == W4Format::kInt4Group64;
  static constexpr bool kScaleWeights = scales_weights(kFormat, kF16);
  // Halves of a chunk whose sums share their scales.
  static constexpr int kUnitHalves = kFormat == W4Format::kInt4Group64 ? 2 : 1;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kScaleBytes = scale_bytes(kFormat);

  // Shared memory: stages of [chunk][x, then each warp's codes and meta].
  static constexpr uint32_t kXBytes = kTokens * kChunkCols * 2;
  static constexpr uint32_t kWarpBytes = kChunkBytes + meta_bytes(kFormat, kInteger);
  static constexpr uint32_t kStageChunkBytes = kXBytes + 4 * kWarpBytes;
  static constexpr uint32_t kStageBytes = kStageChunks * kStageChunkBytes;
  // Afterwards the output tile; 16 bytes a row more keep columns of it in different banks.
  static constexpr uint32_t kOutRowBytes = kBlockRows * 2 + 16;
  static constexpr uint32_t kOutBytes = kTokens * kOutRowBytes;
  static constexpr uint32_t kTicketOffset =
      kStages * kStageBytes > kOutBytes ? kStages* kStageBytes : kOutBytes;
  static constexpr uint32_t kSharedBytes = kTicketOffset + 16;

  // Rows of x are 128 bytes, 8 pieces of 16. Exchanging pieces in odd rows lets the 8 lanes that
  // read together (two rows, four pieces each) meet no bank twice.
  static constexpr int kSwap = kFormat == W4Format::kNvfp4 ? 1 : 4;
  SIMT_DEVICE static uint32_t x_offset(int row, int piece) {
    return static_cast<uint32_t>(row * 128 + ((piece ^ (row % 2 * kSwap)) * 16));
  }
};

// Copies stages, one after another. Columns of x past k become zero; rows of x and of W past their
// ends repeat the last one, and nobody stores what comes of them.
template <class C>
struct Loader {
  static constexpr int kPieces = C::kTokens * 8;  // of 16 bytes, in a chunk of x
  static constexpr int kCopies = kPieces * C::kStageChunks / kThreads;  // of x, a thread
  static_assert(kPieces * C::kStageChunks % kThreads == 0);

  static constexpr int kRowSteps = kPieces < kThreads ? 1 : kPieces / kThreads;
  static constexpr int kRowsAtOnce = kThreads / 8;

  const uint16_t* x;
  const uint8_t* codes;
  const uint8_t* meta;
  int ldx, left_rows, left_bytes, chunk, group_shift, meta_bytes;
  uint32_t x_to, warp_to;

  SIMT_DEVICE Loader(const W4A16Args& p, int first_chunk, int first_token, int row_block) {
    const int tid = simt::thread_index(), lane = tid % 32, piece = tid % 8;
    const int part = kPieces < kThreads ? tid / kPieces : 0;
    const int row = tid % kPieces / 8;
    const int column = (first_chunk + part) * kChunkCols + piece * 8;
    ldx = p.ldx;
    left_rows = p.m - 1 - first_token - row;  // to the last; negative where it is past it
    x = p.x + static_cast<int64_t>(first_token + row) * p.ldx + column;
    left_bytes = 2 * (p.k - column);
    x_to = part * C::kStageChunkBytes + C::x_offset(row, piece);
    const int64_t block = row_block < p.row_blocks ? row_block : p.row_blocks - 1;
    codes = p.codes + (block * p.chunks + first_chunk) * kChunkBytes + lane * 16;
    meta = p.meta + block * p.groups * p.meta_bytes + lane * 16;
    warp_to = C::kXBytes + tid / 32 * C::kWarpBytes + lane * 16;
    chunk = first_chunk;
    group_shift = p.group_shift;
    meta_bytes = p.meta_bytes;
  }

  SIMT_DEVICE void next(uint32_t stage) {
    using namespace simt;
    SIMT_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int part = i / kRowSteps, row = i % kRowSteps * kRowsAtOnce;
      const int left = left_bytes - part * (kChunkCols * 2);
      const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
      const int64_t step = static_cast<int64_t>(row < left_rows ? row : left_rows) * ldx;
      cp_async<16>(stage + x_to + part * C::kStageChunkBytes + row * 128,
                   x + step + part * kChunkCols, bytes);
    }
    SIMT_UNROLL
    for (int part = 0; part < C::kStageChunks; ++part) {
      const uint32_t to = stage + warp_to + part * C::kStageChunkBytes;
      cp_async<16>(to, codes + part * kChunkBytes, 16);
      cp_async<16>(to + 512, codes + part * kChunkBytes + 512, 16);
      if (thread_index() % 32 * 16 < meta_bytes)
        cp_async<16>(to + kChunkBytes,
                     meta + static_cast<int64_t>((chunk + part) >> group_shift) * meta_bytes, 16);
    }
    x += C::kStageChunks * kChunkCols;
    left_bytes -= C::kStageChunks * kChunkCols * 2;
    codes += C::kStageChunks * kChunkBytes;
    chunk += C::kStageChunks;
  }
};

// The scales and zero points of a lane's rows in one unit of a chunk.
template <class C>
struct LaneMeta {
  uint32_t scale_codes;  // a byte a slot
  simt::F32x4 scales;
  uint32_t zero_points;

  SIMT_DEVICE LaneMeta(uint32_t meta, int lane, int half, bool has_zero_points) {
    using namespace simt;
    const int g = lane / 4;
    if constexpr (C::kFormat == W4Format::kNvfp4) {
      scale_codes = lds<uint32_t>(meta + lane * 4);
    } else if constexpr (C::kFormat == W4Format::kMxfp4) {
      scale_codes = lds<uint32_t>(meta + g * 8 + half * 4);
      scales = {scale(0), scale(1), scale(2), scale(3)};
    } else {
      constexpr int kHalves = C::kFormat == W4Format::kInt4Group32 ? 2 : 1;
      const int at = g * kHalves + (kHalves == 2 ? half : 0);
      scales = lds<F32x4>(meta + at * 16);
      zero_points = 0x08080808u;
      if (has_zero_points) zero_points = lds<uint32_t>(meta + C::kScaleBytes + at * 4);
    }
  }

 private:
  SIMT_DEVICE float scale(int slot) const {
    return simt::as_float(simt::prmt(scale_codes, 0, 0x4440u | static_cast<uint32_t>(slot)) << 23);
  }
};

// Adds the products of one chunk in shared memory.
template <class C>
SIMT_DEVICE void multiply_chunk(uint32_t x, uint32_t codes, bool zero_points,
                                float (&sums)[2][C::kTokenTiles][4]) {
  using namespace simt;
  constexpr int kSteps = 2 * C::kUnitHalves;
  const int lane = thread_index() % 32, g = lane / 4, t = lane % 4;
  SIMT_UNROLL
  for (int unit = 0; unit < 2 / C::kUnitHalves; ++unit) {
    const LaneMeta<C> meta(codes + kChunkBytes, lane, unit, zero_points);
    uint32_t a[2][kSteps][4];
    SIMT_UNROLL
    for (int part = 0; part < C::kUnitHalves; ++part) {
      const U32x4 words = lds<U32x4>(codes + (unit * C::kUnitHalves + part) * 512 + lane * 16);
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        uint32_t decoded[2][4];
        unpack<C::kFormat, C::kF16>(i == 0 ? words.x : words.z, i == 0 ? words.y : words.w,
                                    decoded);
        SIMT_UNROLL
        for (int pair = 0; pair < 4; ++pair) {
          const int slot = 2 * i + pair % 2;
          SIMT_UNROLL
          for (int s = 0; s < 2; ++s) {
            uint32_t value = decoded[s][pair];
            if constexpr (C::kInteger)
              value = subtract<C::kF16>(value, int4_offset<C::kF16>(meta.zero_points, slot));
            if constexpr (C::kScaleWeights)
              value = multiply<C::kF16>(value,
                                        weight_scale<C::kFormat, C::kF16>(meta.scale_codes, slot));
            a[i][2 * part + s][pair] = value;
          }
        }
      }
    }
    SIMT_UNROLL
    for (int j = 0; j < C::kTokenTiles; ++j) {
      float group[2][4] = {};
      SIMT_UNROLL
      for (int part = 0; part < C::kUnitHalves; ++part) {
        const int half = unit * C::kUnitHalves + part;
        const int piece = C::kFormat == W4Format::kNvfp4 ? 2 * t + half : 4 * half + t;
        const U32x4 b = lds<U32x4>(x + C::x_offset(8 * j + g, piece));
        SIMT_UNROLL
        for (int i = 0; i < 2; ++i) {
          float(&to)[4] = C::kScaleWeights ? sums[i][j] : group[i];
          mma<C::kF16>(to, a[i][2 * part], b.x, b.y);
          mma<C::kF16>(to, a[i][2 * part + 1], b.z, b.w);
        }
      }
      if constexpr (!C::kScaleWeights) {
        SIMT_UNROLL
        for (int e = 0; e < 4; ++e) {
          sums[0][j][e] += group[0][e] * (e < 2 ? meta.scales.x : meta.scales.y);
          sums[1][j][e] += group[1][e] * (e < 2 ? meta.scales.z : meta.scales.w);
        }
      }
    }
  }
}

// Split k: each block leaves its sums; the last of a tile adds all of them, in the order of k.
// False in the others.
template <class C>
SIMT_DEVICE bool join_splits(const W4A16Args& p, int tile, float (&sums)[2][C::kTokenTiles][4]) {
  using namespace simt;
  const int tid = thread_index();
  constexpr int64_t kVectors = 2 * C::kTokenTiles * kThreads;
  F32x4* all = reinterpret_cast<F32x4*>(p.partial) + tile * (p.splits * kVectors) + tid;
  F32x4* mine = all + block_z() * kVectors;
  SIMT_UNROLL
  for (int i = 0; i < 2; ++i) SIMT_UNROLL
  for (int j = 0; j < C::kTokenTiles; ++j) {
    const float* s = sums[i][j];
    stg(mine + (i * C::kTokenTiles + j) * kThreads, F32x4{s[0], s[1], s[2], s[3]});
  }
  fence_device();
  sync_block();
  if (tid == 0) {
    const uint32_t arrived = atomic_add(p.tickets + tile, 1);
    sts(C::kTicketOffset, arrived);
    if (arrived + 1 == static_cast<uint32_t>(p.splits))
      atomic_add(p.tickets + tile, 0u - arrived - 1);
  }
  sync_block();
  if (lds<uint32_t>(C::kTicketOffset) + 1 != static_cast<uint32_t>(p.splits)) return false;
  fence_device();
  SIMT_UNROLL
  for (int i = 0; i < 2; ++i) SIMT_UNROLL
  for (int j = 0; j < C::kTokenTiles; ++j) {
    float* s = sums[i][j];
    s[0] = s[1] = s[2] = s[3] = 0.0f;
    for (int split = 0; split < p.splits; ++split) {
      const F32x4 v = load_coherent(all + split * kVectors + (i * C::kTokenTiles + j) * kThreads);
      s[0] += v.x;
      s[1] += v.y;
      s[2] += v.z;
      s[3] += v.w;
    }
  }
  return true;
}

SIMT_DEVICE float swiglu(float gate, float up) {
  return gate / (1.0f + simt::exponential(-gate)) * up;
}

// Scales, adds the bias, joins gate and up, rounds, and stores rows of out through shared memory.
template <class C>
SIMT_DEVICE void store_tile(const W4A16Args& p, int first_token, int row_tile,
                            const float (&sums)[2][C::kTokenTiles][4]) {
  using namespace simt;
  const int tid = thread_index(), warp = tid / 32, g = tid % 32 / 4, t = tid % 4;
  const int width = p.pair ? kBlockRows / 2 : kBlockRows;
  const int first_column = row_tile * width;
  SIMT_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int column = p.pair ? 16 * warp + 8 * i + g : 32 * warp + 16 * i + g;
    const int second = p.pair ? column : column + 8;
    float bias0 = 0.0f, bias1 = 0.0f;
    if (p.bias[0] != nullptr && first_column + column < p.columns)
      bias0 = ldg(p.bias[0] + first_column + column);
    if (p.bias[1] != nullptr && first_column + second < p.columns)
      bias1 = ldg(p.bias[1] + first_column + second);
    SIMT_UNROLL
    for (int j = 0; j < C::kTokenTiles; ++j) {
      SIMT_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float y0 = sums[i][j][e] * p.alpha[0] + bias0;
        const float y1 = sums[i][j][2 + e] * p.alpha[1] + bias1;
        const uint32_t row = static_cast<uint32_t>(8 * j + 2 * t + e) * C::kOutRowBytes;
        if (p.pair) {
          sts(row + column * 2, round_output<C::kF16>(swiglu(y0, y1)));
        } else {
          sts(row + column * 2, round_output<C::kF16>(y0));
          sts(row + second * 2, round_output<C::kF16>(y1));
        }
      }
    }
  }
  sync_block();
  const int pieces = width / 8;  // of 16 bytes, a row
  for (int at = tid; at < C::kTokens * pieces; at += kThreads) {
    const int row = at / pieces, token = first_token + row;
    const int column = first_column + at % pieces * 8;
    if (token >= p.m || column >= p.columns) continue;
    const uint32_t from = static_cast<uint32_t>(row) * C::kOutRowBytes + at % pieces * 16;
    uint16_t* to = p.out + static_cast<int64_t>(token) * p.ldout + column;
    if (p.wide_stores && column + 8 <= p.columns) {
      stg(reinterpret_cast<U32x4*>(to), lds<U32x4>(from));
    } else {
      for (int e = 0; e < 8 && column + e < p.columns; ++e)
        stg(to + e, lds<uint16_t>(from + 2 * e));
    }
  }
}

template <class C>
SIMT_KERNEL void SIMT_BOUNDS(kThreads, C::kMinBlocks) w4a16_kernel(W4A16Args p) {
  using namespace simt;
  // Neighbouring blocks take the tokens of the same rows of W, which then come from the cache.
  const int tile = block_x();
  const int row_tile = tile / p.token_tiles, first_token = tile % p.token_tiles * C::kTokens;
  const int warp = thread_index() / 32, row_block = row_tile * 4 + warp;
  const int first = block_z() * p.split_chunks;
  const int last = first + p.split_chunks < p.chunks ? first + p.split_chunks : p.chunks;
  float sums[2][C::kTokenTiles][4] = {};

  Loader<C> loader(p, first, first_token, row_block);
  int to_load = last - first;  // chunks
  SIMT_UNROLL
  for (int s = 0; s < C::kStages - 1; ++s) {
    if (to_load > 0) loader.next(s * C::kStageBytes);
    cp_async_commit();
    to_load -= C::kStageChunks;
  }
  uint32_t use = 0, fill = (C::kStages - 1) * C::kStageBytes;
  SIMT_NO_UNROLL
  for (int chunk = first; chunk < last; chunk += C::kStageChunks) {
    cp_async_wait<C::kStages - 2>();
    sync_block();  // this stage is there for all, and all are done with the one filled next
    if (to_load > 0) loader.next(fill);
    cp_async_commit();
    to_load -= C::kStageChunks;
    SIMT_UNROLL
    for (int part = 0; part < C::kStageChunks; ++part) {
      const uint32_t x = use + part * C::kStageChunkBytes;
      multiply_chunk<C>(x, x + C::kXBytes + warp * C::kWarpBytes, p.zero_points, sums);
    }
    use = use + C::kStageBytes == C::kStages * C::kStageBytes ? 0 : use + C::kStageBytes;
    fill = fill + C::kStageBytes == C::kStages * C::kStageBytes ? 0 : fill + C::kStageBytes;
  }
  cp_async_wait<0>();
  sync_block();
  if (p.splits > 1 && !join_splits<C>(p, tile, sums)) return;
  store_tile<C>(p, first_token, row_tile, sums);
}

}  // namespace curvq::cuda
