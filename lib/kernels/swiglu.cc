#include "kernels/swiglu.h"

#include <bit>
#include <cmath>

#include "formats/simd_clones.h"

namespace curvq::internal {
namespace {

// exp(x) for x <= 0, relative error below 6 * 2^-24; 0 below -87. As in attention_kernels.h,
// without fused operations, so that every instruction set gives the same bits.
[[gnu::always_inline]] inline float exponential(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504f + kMagic;
  const float n = shifted - kMagic;
  // log 2 in two parts, the first with so few bits that n times it is exact.
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const auto power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
  return x < -87.0f ? 0.0f : p * power;
}

}  // namespace

CURVQ_SIMD_CLONES void swiglu(const float* gate, const float* up, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i], e = exponential(-std::fabs(g));
    out[i] = g * ((g < 0 ? e : 1.0f) / (1 + e)) * up[i];
  }
}

}  // namespace curvq::internal
