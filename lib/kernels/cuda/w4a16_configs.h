// Which configuration of the kernel runs a product; the same on a device and in the emulator.
#pragma once

#include "kernels/cuda/w4a16_kernel.h"

namespace curvq::cuda {

// Few tokens: two chunks a stage, so that the block barrier costs half, and blocks enough to keep
// many copies under way; sums of groups of 32 leave registers for three of them only. Many tokens:
// as many a decoded weight as registers allow.
template <W4Format kFormat, bool kF16, int kTokenTiles>
constexpr int kBlocksAtOnce =
    kTokenTiles > 2                                                                          ? 2
    : kTokenTiles == 1 || scales_weights(kFormat, kF16) || kFormat == W4Format::kInt4Group64 ? 4
                                                                                             : 3;
template <W4Format kFormat, bool kF16, int kTokenTiles>
using ConfigFor = W4A16Config<kFormat, kF16, kTokenTiles, kTokenTiles <= 2 ? 2 : 1, 4,
                              kBlocksAtOnce<kFormat, kF16, kTokenTiles>>;

// Calls run(ConfigFor<...>{}).
template <W4Format kFormat, bool kF16, class Run>
void with_token_tiles(int token_tiles, const Run& run) {
  if (token_tiles == 1) return run(ConfigFor<kFormat, kF16, 1>{});
  if (token_tiles == 2) return run(ConfigFor<kFormat, kF16, 2>{});
  if (token_tiles == 8) return run(ConfigFor<kFormat, kF16, 8>{});
  if constexpr (scales_weights(kFormat, kF16)) return run(ConfigFor<kFormat, kF16, 12>{});
}
template <W4Format kFormat, class Run>
void with_config(bool f16, int token_tiles, const Run& run) {
  return f16 ? with_token_tiles<kFormat, true>(token_tiles, run)
             : with_token_tiles<kFormat, false>(token_tiles, run);
}
template <class Run>
void with_config(W4Format format, bool f16, int token_tiles, const Run& run) {
  switch (format) {
    case W4Format::kNvfp4:
      return with_config<W4Format::kNvfp4>(f16, token_tiles, run);
    case W4Format::kMxfp4:
      return with_config<W4Format::kMxfp4>(f16, token_tiles, run);
    case W4Format::kInt4Group32:
      return with_config<W4Format::kInt4Group32>(f16, token_tiles, run);
    case W4Format::kInt4Group64:
      return with_config<W4Format::kInt4Group64>(f16, token_tiles, run);
  }
}

}  // namespace curvq::cuda
