// Loops over the rows of a matrix, in parallel where there is enough work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "curvq/core/parallel.h"

namespace curvq::internal {

// Calls fn(row) for all rows. Threads get pieces of some ten thousand elements: waking one costs as
// much as quantizing a few thousand.
template <class Fn>
void for_each_row(int64_t rows, int64_t cols, Fn&& fn) {
  constexpr int64_t kPiece = 16384;
  const int64_t rows_per_piece = std::max<int64_t>(1, kPiece / std::max<int64_t>(cols, 1));
  const int64_t pieces = (rows + rows_per_piece - 1) / rows_per_piece;
  parallel_for(0, pieces, [&](int64_t piece) {
    const int64_t end = std::min(rows, (piece + 1) * rows_per_piece);
    for (int64_t row = piece * rows_per_piece; row < end; ++row) fn(row);
  });
}

}  // namespace curvq::internal
