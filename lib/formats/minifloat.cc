#include "curvq/formats/minifloat.h"

#include "formats/codec.h"

namespace curvq {

float e2m1_to_f32(uint8_t code) { return internal::E2M1Codec{}.value(code & 15); }

uint8_t f32_to_e2m1(float value) { return internal::E2M1Codec{}.code(value); }

float e4m3_to_f32(uint8_t code) { return internal::E4M3Codec{}.value(code); }

uint8_t f32_to_e4m3(float value) { return internal::E4M3Codec{}.code(value); }

float e5m2_to_f32(uint8_t code) {
  const uint32_t magnitude = code & 0x7f;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  uint32_t bits = std::bit_cast<uint32_t>(internal::E5M2::decode(magnitude));
  if (magnitude >= 0x7c) bits = magnitude == 0x7c ? 0x7f800000u : 0x7fc00000u;
  return std::bit_cast<float>(bits | sign);
}

uint8_t f32_to_e5m2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  uint32_t code = internal::E5M2::encode(magnitude < kE5M2Max ? magnitude : kE5M2Max);
  if (magnitude != magnitude) code = 0x7f;
  return static_cast<uint8_t>(code | (bits >> 31 << 7));
}

float e8m0_to_f32(uint8_t code) {
  if (code == 0xff) return std::bit_cast<float>(0x7fc00000u);
  // 2^-127 is a float32 subnormal.
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

}  // namespace curvq
