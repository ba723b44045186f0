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

CURVQ_SIMD_CLONES void dot_rows(const uint16_t* __restrict weight, int64_t rows, int64_t k,
                                const float* __restrict x, float* __restrict out) {
  constexpr int64_t kAhead = 1024;  // values of the stream from memory
  for (int64_t r = 0; r < rows; ++r, weight += k) {
    float sums[kSums] = {};
    int64_t c = 0;
    for (; c + kSums <= k; c += kSums) {
      __builtin_prefetch(weight + c + kAhead);
#pragma omp simd
      for (int64_t l = 0; l < kSums; ++l) sums[l] += x[c + l] * widen(weight[c + l]);
    }
    for (int64_t l = 0; c + l < k; ++l) sums[l] += x[c + l] * widen(weight[c + l]);
    for (int64_t half = kSums / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
    }
    out[r] = sums[0];
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
