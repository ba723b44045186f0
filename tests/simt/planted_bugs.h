// A small pipelined product that uses what our kernels use, with a bug planted on demand:
// out [m, 32] = x [m, k] w^T, w [32, k], bfloat16 in, float32 out; two warps, 16 columns each.
#pragma once

#include "kernels/cuda/simt/simt.h"

namespace curvq::simt {

enum class Bug {
  kNone,
  kNoBarrier,             // between landing and reading
  kWaitsForOneTooFew,     // wait_group off by one
  kPrefetchOneTooFar,     // into the stage that is still read
  kNoCommit,              // copies never become a group
  kWrongSwizzle,          // the reader's differs from the writer's
  kNoSwizzle,             // right, but banks collide
  kNoTokenPredicate,      // rows past m are read and written
  kNoColumnPredicate,     // columns past k are read
  kWrongScale,            // of the neighbour
  kMisaligned,            // 16-byte copies to odd places
  kPastSharedMemory,      // one stage too many
  kUninitialised,         // reads a part that nothing wrote
  kBarrierInBranch,       // half of the threads miss it
  kDivergentShuffle,      // lanes meet at different operations
  kExitsBeforeBarrier,    // threads without work leave early
  kNoWarpSync,            // lanes exchange through shared memory with nothing between
  kConstantReadOfOutput,  // ldg of what the launch wrote
  kWritesInput,
  kNoFence,            // between a block's sums and its ticket
  kNoTicket,           // reads other blocks' sums without any
  kOverlappingBlocks,  // two blocks store to one place
};

struct PlantedArgs {
  const uint16_t* x;
  uint16_t* w;
  const float* scales;  // [32]
  float* out;           // [m, 32]
  float* partial;       // [2, m, 32]: k split in two blocks
  uint32_t* ticket;
  int m, k;
};

constexpr int kPlantedStages = 3, kPlantedRowBytes = 32, kPlantedStageBytes = 48 * kPlantedRowBytes;
constexpr int kPlantedShared = kPlantedStages * kPlantedStageBytes + 64 * 4 + 16;

template <Bug kBug>
SIMT_KERNEL void planted_kernel(PlantedArgs p) {
  const int tid = thread_index(), lane = tid % 32, warp = tid / 32, g = lane / 4, t = lane % 4;
  if constexpr (kBug == Bug::kExitsBeforeBarrier)
    if (tid >= 48) return;
  const int chunks = (p.k + 15) / 16, each = (chunks + grid_x() - 1) / grid_x();
  const int first = block_x() * each, last = first + each < chunks ? first + each : chunks;
  const auto place = [](int row, int piece, bool reader) {
    int swapped = kBug == Bug::kNoSwizzle ? piece : piece ^ (row / 4 % 2);
    if (reader && kBug == Bug::kWrongSwizzle) swapped = piece ^ (row / 2 % 2);
    return static_cast<uint32_t>(row * kPlantedRowBytes + swapped * 16);
  };
  const auto load = [&](int stage, int chunk) {
    // 16 rows of x, 32 of w, two pieces of 8 elements each: 96 pieces, 64 threads.
    for (int at = tid; at < 96; at += 64) {
      const int row = at / 2, piece = at % 2, column = chunk * 16 + piece * 8;
      const bool of_x = row < 16;
      bool inside = (!of_x || row < p.m);
      if constexpr (kBug == Bug::kNoTokenPredicate) inside = true;
      int bytes = 2 * (p.k - column);
      bytes = bytes < 0 ? 0 : bytes > 16 ? 16 : bytes;
      if constexpr (kBug == Bug::kNoColumnPredicate) bytes = 16;
      const uint16_t* from = (of_x ? p.x + row * p.k : p.w + (row - 16) * p.k) + column;
      if constexpr (kBug == Bug::kUninitialised)
        if (row == 47) continue;
      const uint32_t odd = kBug == Bug::kMisaligned ? 8 : 0;
      cp_async<16>(stage * kPlantedStageBytes + place(row, piece, false) + odd, inside ? from : p.x,
                   inside ? bytes : 0);
    }
  };
  float sums[2][4] = {};
  for (int s = 0; s < kPlantedStages - 1; ++s) {
    if (first + s < last) load(s, first + s);
    if constexpr (kBug != Bug::kNoCommit) cp_async_commit();
  }
  for (int chunk = first; chunk < last; ++chunk) {
    cp_async_wait<kBug == Bug::kWaitsForOneTooFew ? kPlantedStages - 1 : kPlantedStages - 2>();
    if constexpr (kBug == Bug::kBarrierInBranch) {
      if (warp == 0) sync_block();
    } else if constexpr (kBug != Bug::kNoBarrier) {
      sync_block();
    }
    constexpr int kAhead = kBug == Bug::kPrefetchOneTooFar ? kPlantedStages : kPlantedStages - 1;
    const int next = chunk + kAhead;
    int to = (next - first) % kPlantedStages;
    if constexpr (kBug == Bug::kPastSharedMemory) to = (next - first) % (kPlantedStages + 1);
    if (next < last) load(to, next);
    cp_async_commit();
    const uint32_t stage = (chunk - first) % kPlantedStages * kPlantedStageBytes;
    uint32_t a[4];
    // Matrices of ldmatrix: rows 0-7 and 8-15 of the first piece, then of the second.
    ldmatrix_x4(a, stage + place(lane % 16, lane / 16, true));
    for (int tile = 0; tile < 2; ++tile) {
      uint32_t b[4];
      ldmatrix_x4(b, stage + place(16 + 16 * warp + 8 * tile + lane % 8, lane / 8 % 2, true));
      mma_bf16(sums[tile], a, b[0], b[1]);
    }
  }
  cp_async_wait<0>();
  sync_block();
  // Scales go to the lanes through shared memory, though they need not.
  const uint32_t scales = kPlantedStages * kPlantedStageBytes;
  sts(scales + 4 * tid, to_bf16(0.0f));
  sts(scales + 4 * tid + 2, to_bf16(ldg(p.scales + tid % 32)));
  if constexpr (kBug != Bug::kNoWarpSync) sync_warp();
  const auto scale_of = [&](int column) {  // this warp wrote all 32
    const int at = 32 * warp + (kBug == Bug::kWrongScale ? column ^ 1 : column);
    return as_float(lds<uint32_t>(scales + 4 * at));
  };
  float extra = 0.0f;
  if constexpr (kBug == Bug::kDivergentShuffle) {
    if (lane < 16) extra = shfl_xor(0.0f, 1);
    if (lane >= 16) extra = shfl_xor(0.0f, 1);
  } else {
    extra = shfl_xor(0.0f, 1);
  }
  float* mine = p.partial + block_x() * p.m * 32;
  for (int tile = 0; tile < 2; ++tile)
    for (int e = 0; e < 4; ++e) {
      const int row = g + 8 * (e / 2), column = 16 * warp + 8 * tile + 2 * t + e % 2;
      if (row < p.m || kBug == Bug::kNoTokenPredicate)
        stg(mine + row * 32 + column, sums[tile][e] * scale_of(column) + extra);
    }
  if constexpr (kBug == Bug::kWritesInput) stg(p.w, uint16_t{0});
  if constexpr (kBug == Bug::kOverlappingBlocks) stg(p.out, 1.0f);
  const uint32_t flag = scales + 64 * 4;
  if constexpr (kBug != Bug::kNoTicket) {
    if constexpr (kBug != Bug::kNoFence) fence_device();
    sync_block();
    if (tid == 0) sts(flag, atomic_add(p.ticket, 1));
    sync_block();
    if (lds<uint32_t>(flag) + 1 != static_cast<uint32_t>(grid_x())) return;
  }
  for (int at = tid; at < p.m * 32; at += 64) {
    float sum = 0.0f;
    for (int block = 0; block < grid_x(); ++block) {
      const float* from = p.partial + block * p.m * 32 + at;
      sum += kBug == Bug::kConstantReadOfOutput ? ldg(from) : load_coherent(from);
    }
    stg(p.out + at, sum);
  }
}

}  // namespace curvq::simt
