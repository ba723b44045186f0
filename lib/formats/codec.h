// Elements: from a quotient w / scale + zero_point to a code, and from a code to its value.
// Branch-free and without state that changes, so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

#include "curvq/formats/minifloat.h"
#include "curvq/formats/scheme.h"
#include "formats/small_float.h"

namespace curvq::internal {

// The magnitude of float32 `bits`, at most `max`; NaN gives max. Magnitudes order as their bits.
constexpr float clamped_magnitude(uint32_t bits, float max) {
  const uint32_t magnitude = bits & 0x7fffffffu, limit = std::bit_cast<uint32_t>(max);
  return std::bit_cast<float>(magnitude < limit ? magnitude : limit);
}

struct E2M1Codec {
  constexpr uint8_t code(float quotient) const {
    const int32_t bits = std::bit_cast<int32_t>(quotient);
    constexpr int32_t kMax = std::bit_cast<int32_t>(kE2M1Max);
    const int32_t magnitude = (bits & 0x7fffffff) < kMax ? bits & 0x7fffffff : kMax;
    // From 1 on the exponent and one bit of mantissa, ties to even; 1 has index 2.
    constexpr int32_t kHalf = (1 << 21) - 1, kZero = std::bit_cast<int32_t>(0.5f);
    const int32_t normal = (magnitude + (magnitude >> 22 & 1) + (kHalf - kZero)) >> 22;
    // Below, 0 up to .25, 1 up to .75.
    const int32_t some = magnitude > std::bit_cast<int32_t>(0.25f);
    const int32_t below = some + (magnitude >= std::bit_cast<int32_t>(0.75f));
    return static_cast<uint8_t>((normal > below ? normal : below) | (bits >> 28 & 8 & -some));
  }
  constexpr float value(uint32_t code) const {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(E2M1::decode(code & 7)) |
                                (code >> 3 << 31));
  }
};

struct E4M3Codec {
  constexpr uint8_t code(float quotient) const {
    const uint32_t bits = std::bit_cast<uint32_t>(quotient);
    const uint32_t finite = E4M3::encode(clamped_magnitude(bits, kE4M3Max));
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return static_cast<uint8_t>(select(nan, 0x7f, finite) | (bits >> 31 << 7));
  }
  constexpr float value(uint32_t code) const {
    const uint32_t magnitude = code & 0x7f;
    const uint32_t bits =
        select(magnitude == 0x7f, 0x7fc00000u, std::bit_cast<uint32_t>(E4M3::decode(magnitude)));
    return std::bit_cast<float>(bits | (code >> 7 << 31));
  }
};

template <int kBits>
struct IntCodec {
  static constexpr int kOffset = 1 << (kBits - 1);
  // 1.5 * 2^23: adding it rounds a small float32 to an integer, ties to even.
  static constexpr float kMagic = 12582912.0f;

  constexpr uint8_t code(float quotient) const {
    constexpr float kLow = -kOffset, kHigh = kOffset - 1;
    uint32_t bits = std::bit_cast<uint32_t>(quotient);
    bits = select(quotient > kLow, bits, std::bit_cast<uint32_t>(kLow));
    bits = select(quotient < kHigh, bits, std::bit_cast<uint32_t>(kHigh));  // and NaN
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + kMagic) -
                                std::bit_cast<uint32_t>(kMagic) + kOffset);
  }
  constexpr float value(uint32_t code) const {
    return static_cast<float>(static_cast<int32_t>(code) - kOffset);
  }
};

// Calls fn(codec) with the codec of the scheme's element.
template <class Fn>
decltype(auto) with_codec(const Scheme& scheme, Fn&& fn) {
  if (scheme.element == ElementType::kE2M1) return fn(E2M1Codec{});
  if (scheme.element == ElementType::kE4M3) return fn(E4M3Codec{});
  if (scheme.bits == 4) return fn(IntCodec<4>{});
  return fn(IntCodec<8>{});
}

}  // namespace curvq::internal
