// Elements: from a quotient w / scale + zero_point to a code, and from a code to its value.
// Branch-free and without state that changes, so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

#include "curvq/formats/minifloat.h"
#include "curvq/formats/scheme.h"
#include "formats/small_float.h"

namespace curvq::internal {

struct E2M1Codec {
  constexpr uint8_t code(float quotient) const {
    const uint32_t bits = std::bit_cast<uint32_t>(quotient);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
    const uint32_t index = E2M1::encode(magnitude < kE2M1Max ? magnitude : kE2M1Max);
    return static_cast<uint8_t>(index == 0 ? 0 : index | (bits >> 31 << 3));
  }
  constexpr float value(uint32_t code) const {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(E2M1::decode(code & 7)) |
                                (code >> 3 << 31));
  }
};

struct E4M3Codec {
  constexpr uint8_t code(float quotient) const {
    const uint32_t bits = std::bit_cast<uint32_t>(quotient);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
    const uint32_t finite = E4M3::encode(magnitude < kE4M3Max ? magnitude : kE4M3Max);
    const uint32_t index = magnitude != magnitude ? 0x7f : finite;
    return static_cast<uint8_t>(index | (bits >> 31 << 7));
  }
  constexpr float value(uint32_t code) const {
    const uint32_t magnitude = code & 0x7f;
    const uint32_t bits =
        magnitude == 0x7f ? 0x7fc00000u : std::bit_cast<uint32_t>(E4M3::decode(magnitude));
    return std::bit_cast<float>(bits | (code >> 7 << 31));
  }
};

template <int kBits>
struct IntCodec {
  static constexpr int kOffset = 1 << (kBits - 1);
  // 1.5 * 2^23: adding it rounds a small float32 to an integer, ties to even.
  static constexpr float kMagic = 12582912.0f;

  constexpr uint8_t code(float quotient) const {
    const float low = -kOffset, high = kOffset - 1;
    const float raised = quotient > low ? quotient : low;  // NaN gives low
    const float clamped = raised < high ? raised : high;
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(clamped + kMagic) -
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
