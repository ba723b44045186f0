#include "kernels/cuda/w4a16.h"

#include <algorithm>
#include <limits>

#include "curvq/core/error.h"
#include "kernels/cuda/product_sizes.h"
#include "kernels/cuda/w4a16_format.h"

namespace curvq::internal {
namespace {

// Blocks of that many tokens that a multiprocessor holds, by registers.
int blocks_at_once(int token_tiles) { return token_tiles <= 2 ? 4 : 2; }

// Two chunks a stage for few tokens; a part of k keeps at least four of them.
constexpr int kStageChunks = 2, kLeastStages = 4, kMostSplits = 32;

int choose_splits(int64_t tiles, int64_t chunks, int64_t slots) {
  const int64_t wanted = slots / tiles;
  const int64_t possible = chunks / (kStageChunks * kLeastStages);
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, possible), 1, kMostSplits));
}

}  // namespace

W4A16Launch plan_w4a16(const W4A16Weight& weight, int64_t m, int64_t ldx, int64_t ldout,
                       int multiprocessors, int splits) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  check_product_sizes("w4a16", m, kMost / 16, ldx, ldout, weight.rows, weight.cols);
  if (multiprocessors < 1 || splits < 0)
    throw UsageError("w4a16: multiprocessors and splits must be positive");

  W4A16Launch launch{};
  launch.format = w4_format(weight.scheme);
  launch.f16 = weight.type == Float16Type::kFloat16;
  launch.token_tiles = cuda::token_tiles_for(launch.format, launch.f16, m);

  cuda::W4A16Args& args = launch.args;
  args.m = static_cast<int>(m);
  args.columns = static_cast<int>(weight.rows);
  args.k = static_cast<int>(weight.cols);
  args.ldx = static_cast<int>(ldx);
  args.ldout = static_cast<int>(ldout);
  args.row_blocks = static_cast<int>(weight.row_blocks);
  args.chunks = static_cast<int>(weight.chunks);
  args.group_shift = weight.group_shift;
  args.groups = static_cast<int>(weight.groups);
  args.zero_points = !weight.scheme.symmetric;
  args.meta_bytes = cuda::meta_bytes(launch.format, args.zero_points);
  args.row_tiles = (args.row_blocks + 3) / 4;
  args.token_tiles = (args.m + 8 * launch.token_tiles - 1) / (8 * launch.token_tiles);
  args.pair = weight.pair;
  args.wide_stores = ldout % 8 == 0;
  for (int i = 0; i < 2; ++i) args.alpha[i] = weight.alpha[weight.pair ? i : 0];

  const int64_t tiles = int64_t{args.row_tiles} * args.token_tiles;
  if (splits == 0)
    splits = choose_splits(std::max<int64_t>(tiles, 1), args.chunks,
                           int64_t{multiprocessors} * blocks_at_once(launch.token_tiles));
  const int stages = args.chunks / kStageChunks;
  const int stages_each = (stages + splits - 1) / splits;
  args.split_chunks = stages_each * kStageChunks;
  args.splits = (stages + stages_each - 1) / stages_each;
  if (args.splits > 1) {
    launch.tickets = tiles;
    launch.partial_floats =
        tiles * args.splits * cuda::kBlockRows * 8 * int64_t{launch.token_tiles};
  }
  return launch;
}

}  // namespace curvq::internal
