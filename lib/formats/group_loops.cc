#include "formats/group_loops.h"

#include <bit>

#include "curvq/formats/quantized_matrix.h"
#include "formats/simd_clones.h"

namespace curvq::internal {
namespace {

template <int64_t kGroupSize>
[[gnu::always_inline]] inline void magnitudes(const float* __restrict values, int64_t groups,
                                              float* __restrict to) {
  for (int64_t g = 0; g < groups; ++g) {
    int32_t largest = 0;  // without their sign, float32 bits order as the magnitudes do
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < kGroupSize; ++i) {
      const int32_t bits = std::bit_cast<int32_t>(values[g * kGroupSize + i]) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    to[g] = std::bit_cast<float>(largest);
  }
}

template <int64_t kGroupSize>
[[gnu::always_inline]] inline void divide(const float* __restrict values,
                                          const float* __restrict scales, int64_t groups,
                                          float* __restrict out) {
  for (int64_t g = 0; g < groups; ++g) {
    // Divisions leave memory idle: the next row, which lies behind this one, may come.
    for (int64_t i = 0; i < kGroupSize; i += 16)
      __builtin_prefetch(values + (groups + g) * kGroupSize + i);
#pragma omp simd
    for (int64_t i = 0; i < kGroupSize; ++i)
      out[g * kGroupSize + i] = values[g * kGroupSize + i] / scales[g];
  }
}

CURVQ_SIMD_CLONES void magnitudes_16(const float* values, int64_t groups, float* to) {
  magnitudes<16>(values, groups, to);
}
CURVQ_SIMD_CLONES void magnitudes_32(const float* values, int64_t groups, float* to) {
  magnitudes<32>(values, groups, to);
}
CURVQ_SIMD_CLONES void divide_16(const float* values, const float* scales, int64_t groups,
                                 float* out) {
  divide<16>(values, scales, groups, out);
}
CURVQ_SIMD_CLONES void divide_32(const float* values, const float* scales, int64_t groups,
                                 float* out) {
  divide<32>(values, scales, groups, out);
}
CURVQ_SIMD_CLONES void divide_all(const float* __restrict values, float scale, int64_t count,
                                  float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = values[i] / scale;
}

}  // namespace

void group_magnitudes(const float* values, int64_t groups, int64_t group_size, float* to) {
  if (group_size == 16) return magnitudes_16(values, groups, to);
  if (group_size == 32) return magnitudes_32(values, groups, to);
  for (int64_t g = 0; g < groups; ++g) to[g] = max_abs(values + g * group_size, group_size);
}

void divide_groups(const float* values, const float* scales, int64_t groups, int64_t group_size,
                   float* out) {
  if (group_size == 16) return divide_16(values, scales, groups, out);
  if (group_size == 32) return divide_32(values, scales, groups, out);
  for (int64_t g = 0; g < groups; ++g)
    divide_all(values + g * group_size, scales[g], group_size, out + g * group_size);
}

}  // namespace curvq::internal
