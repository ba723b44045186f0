#include "curvq/kernels/dense.h"

#include <algorithm>
#include <bit>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

constexpr int64_t kSums = 16;

float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// kRows rows, `stride` apart.
template <int kRows>
[[gnu::always_inline]] inline void dot(const uint16_t* __restrict weight, int64_t stride, int64_t k,
                                       const float* __restrict x, float* const* out) {
  constexpr int64_t kAhead = 1024;  // values of the streams from memory
  float sums[kRows][kSums] = {};
  int64_t c = 0;
  for (; c + kSums <= k; c += kSums) {
    for (int r = 0; r < kRows; ++r) {
      const uint16_t* __restrict row = weight + r * stride + c;
      __builtin_prefetch(row + kAhead);
#pragma omp simd
      for (int64_t l = 0; l < kSums; ++l) sums[r][l] += x[c + l] * widen(row[l]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t l = 0; c + l < k; ++l) sums[r][l] += x[c + l] * widen(weight[r * stride + c + l]);
    for (int64_t half = kSums / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) sums[r][l] += sums[r][l + half];
    }
    *out[r] = sums[r][0];
  }
}

// Four streams through the rows, which memory serves faster than one.
CURVQ_SIMD_CLONES void dot_rows(const uint16_t* weight, int64_t rows, int64_t k, const float* x,
                                float* out) {
  constexpr int kStreams = 4;
  const int64_t share = rows / kStreams;
  for (int64_t r = 0; r < share; ++r) {
    float* const to[] = {out + r, out + share + r, out + 2 * share + r, out + 3 * share + r};
    dot<kStreams>(weight + r * k, share * k, k, x, to);
  }
  for (int64_t r = kStreams * share; r < rows; ++r) {
    float* const to[] = {out + r};
    dot<1>(weight + r * k, 0, k, x, to);
  }
}

}  // namespace

void gemv_bf16(const uint16_t* weight, int64_t n, int64_t k, const float* x, float* out) {
  if (n < 0 || k < 0)
    throw UsageError(format("gemv_bf16: %lld rows of %lld columns", (long long)n, (long long)k));
  if ((weight == nullptr && n * k > 0) || (x == nullptr && k > 0) || (out == nullptr && n > 0))
    throw UsageError("gemv_bf16: a null pointer");
  constexpr int64_t kPieceValues = 65536;  // waking a thread costs as much
  const int64_t rows = std::max<int64_t>(1, kPieceValues / std::max<int64_t>(k, 1));
  parallel_for(0, (n + rows - 1) / rows, [&](int64_t piece) {
    const int64_t first = piece * rows;
    dot_rows(weight + first * k, std::min(rows, n - first), k, x, out + first);
  });
}

}  // namespace curvq
