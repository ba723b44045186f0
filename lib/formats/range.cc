#include "formats/range.h"

#include <bit>

#include "curvq/formats/quantized_matrix.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

CURVQ_SIMD_CLONES uint32_t max_magnitude_bits(const float* values, int64_t count) {
  // Without their sign, float32 bits order as the magnitudes do, with NaN above infinity.
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Maps float32 bits to integers of the same order, and back: negative floats order backwards.
constexpr int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

CURVQ_SIMD_CLONES void ordered_range(const float* values, int64_t count, int32_t& min,
                                     int32_t& max) {
  int32_t smallest = 0, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t key = ordered(std::bit_cast<int32_t>(values[i]));
    smallest = key < smallest ? key : smallest;
    largest = key > largest ? key : largest;
  }
  min = smallest;
  max = largest;
}

}  // namespace

float max_abs(const float* values, int64_t count) {
  return std::bit_cast<float>(max_magnitude_bits(values, count));
}

internal::Range internal::range_of(const float* values, int64_t count) {
  int32_t min, max;
  ordered_range(values, count, min, max);
  return {std::bit_cast<float>(ordered(min)), std::bit_cast<float>(ordered(max))};
}

}  // namespace curvq
