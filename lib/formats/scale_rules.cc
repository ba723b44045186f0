#include "formats/scale_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "curvq/formats/minifloat.h"

namespace curvq::internal {
namespace {

// The largest E2M1 value times the largest E4M3 scale: what the tensor's largest weight becomes.
constexpr float kNvfp4Range = kE2M1Max * kE4M3Max;
// With a divisor up to 2^117, the smallest effective scale 2^-9 / divisor is a normal float32.
constexpr float kLargestDivisor = 0x1p117f;
// E4M3 code of 0.125, the scale of a block of zeros.
constexpr uint8_t kZeroBlockCode = 0x20;

// Smallest normal value and distance from 1 to the next value.
float smallest_normal(DType dtype) { return dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f; }
float epsilon(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-10f;
  return dtype == DType::kBF16 ? 0x1p-7f : 0x1p-23f;
}
float smallest_positive(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-24f;
  return dtype == DType::kBF16 ? 0x1p-133f : std::numeric_limits<float>::denorm_min();
}

// Rounds as the rule's arithmetic does: compressed-tensors computes in the weight's own type.
struct Rounding {
  explicit Rounding(const Scheme& scheme)
      : dtype(scheme.rule == ScaleRule::kCompressedTensors ? scheme.source_dtype : DType::kF32) {}
  float operator()(float value) const { return round_to_dtype(value, dtype); }
  DType dtype;
};

}  // namespace

float nvfp4_divisor(const Scheme& scheme, float tensor_amax) {
  if (scheme.rule == ScaleRule::kCompressedTensors) {
    const Rounding rounded(scheme);
    const float amax = std::max(tensor_amax, smallest_normal(scheme.source_dtype));
    const float divisor = rounded(rounded(1.0f / amax) * kNvfp4Range);
    return std::isfinite(divisor) ? divisor : 1.0f;
  }
  if (tensor_amax == 0) return 1.0f;
  return std::min(kNvfp4Range / tensor_amax, kLargestDivisor);
}

uint8_t nvfp4_scale_code(const Scheme& scheme, float divisor, float block_amax) {
  if (scheme.rule == ScaleRule::kCompressedTensors) {
    const uint8_t code = f32_to_e4m3(divisor * Rounding(scheme)(block_amax / kE2M1Max));
    return code == 0 ? kZeroBlockCode : code;
  }
  if (block_amax == 0) return kZeroBlockCode;
  return std::max<uint8_t>(f32_to_e4m3(divisor * block_amax / kE2M1Max), 1);
}

uint8_t mxfp4_scale_code(const Scheme& scheme, float group_amax) {
  const MxRule rule = scheme.rule == ScaleRule::kCompressedTensors ? MxRule::kEven : scheme.mx_rule;
  // Sign-free float32 bits: the biased exponent above 23 bits of mantissa. Subnormal magnitudes
  // have exponent 0 and end at code 0, the smallest scale.
  const uint32_t bits = std::bit_cast<uint32_t>(group_amax);
  uint32_t exponent = bits >> 23;
  const uint32_t mantissa = bits & 0x7fffffu;
  switch (rule) {
    case MxRule::kFloor:
      break;
    case MxRule::kEven:  // 1.75 and above carries into the exponent
      exponent = (bits + 0x200000u) >> 23;
      break;
    case MxRule::kCeil:
      exponent += mantissa > 0;
      break;
    case MxRule::kRceil:  // 6 = 1.5 * 2^2
      exponent += mantissa > 0x400000u;
      break;
  }
  return static_cast<uint8_t>(exponent > 2 ? exponent - 2 : 0);
}

AffineScale affine_scale(const Scheme& scheme, float min, float max) {
  const Rounding rounded(scheme);
  const bool compressed_tensors = scheme.rule == ScaleRule::kCompressedTensors;
  const bool is_int = scheme.element == ElementType::kInt;
  const float steps = static_cast<float>((1 << scheme.bits) - 1);
  float scale;
  if (scheme.symmetric) {
    scale = rounded(std::max(-min, max) / (is_int ? steps / 2 : kE4M3Max));
  } else {
    const float range = max - min;
    scale = rounded(rounded(range) / steps);
    // The range of the largest floats overflows although its scale does not.
    if (!compressed_tensors && std::isinf(range)) scale = max / steps - min / steps;
  }
  scale = round_to_dtype(scale, scheme.scale_dtype);

  AffineScale result{scale, 0};
  const bool zeros = min == 0 && max == 0;
  if (!scheme.symmetric && !zeros) {
    if (scale == 0 && !compressed_tensors) scale = smallest_positive(scheme.scale_dtype);
    const float low = static_cast<float>(scheme.min_code());
    const float shifted = rounded(low - rounded(min / scale));
    const float clamped = std::clamp(shifted, low, static_cast<float>(scheme.max_code()));
    result.zero_point = std::isnan(clamped) ? 0 : static_cast<int>(std::nearbyint(clamped));
  }
  if (result.scale == 0) {
    if (compressed_tensors) {
      result.scale = round_to_dtype(epsilon(scheme.source_dtype), scheme.scale_dtype);
    } else {
      result.scale = zeros ? epsilon(scheme.scale_dtype) : smallest_positive(scheme.scale_dtype);
    }
  }
  return result;
}

}  // namespace curvq::internal
