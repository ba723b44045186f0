// Branch-free conversion of float32 magnitudes to small floats with IEEE-like subnormals. Written
// so that loops over it vectorise; every path rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace curvq::internal {

constexpr float power_of_two(int exponent) {  // -126 <= exponent <= 127
  return std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
}

// `condition ? a : b` by masks: compilers do not turn it into a branch around floating point
// operations, which would keep a loop from being vectorised.
constexpr uint32_t select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

// A float with `kMantissaBits` stored mantissa bits whose smallest normal value is 2^(1 - kBias).
template <int kMantissaBits, int kBias>
struct SmallFloat {
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << kMantissaBits;
  static constexpr float kMinNormal = power_of_two(1 - kBias);
  static constexpr float kMinSubnormal = power_of_two(1 - kBias - kMantissaBits);
  // One unit in the last place of this float32 is kMinSubnormal: adding it rounds to subnormals.
  static constexpr float kMagic = power_of_two(kShift + 1 - kBias);

  // Code of the value nearest to `magnitude`, which is not NaN, not negative, and at most the
  // power of two above the largest finite value.
  static constexpr uint32_t encode(float magnitude) {
    const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
    const uint32_t half = (1u << (kShift - 1)) - 1 + ((bits >> kShift) & 1);
    const uint32_t normal = ((bits + half) >> kShift) - kRebias;
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(magnitude + kMagic) - std::bit_cast<uint32_t>(kMagic);
    return select(bits < std::bit_cast<uint32_t>(kMinNormal), subnormal, normal);
  }

  // Value of a code without its sign; infinities and NaN are the caller's.
  static constexpr float decode(uint32_t code) {
    const uint32_t normal = (code + kRebias) << kShift;
    const float subnormal = static_cast<float>(static_cast<int32_t>(code)) * kMinSubnormal;
    return std::bit_cast<float>(
        select((code >> kMantissaBits) == 0, std::bit_cast<uint32_t>(subnormal), normal));
  }
};

using E2M1 = SmallFloat<1, 1>;
using E4M3 = SmallFloat<3, 7>;
using E5M2 = SmallFloat<2, 15>;
using Binary16 = SmallFloat<10, 15>;

}  // namespace curvq::internal
