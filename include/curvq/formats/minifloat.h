// The small floats of the OCP Microscaling and NVFP4 formats.
//
//   E2M1   s eem   +-{0 .5 1 1.5 2 3 4 6}; no infinity, no NaN
//   E4M3   s eeee mmm, bias 7 ("fn"): max 448, subnormals m 2^-9, NaN 0x7f/0xff, no infinity
//   E5M2   s eeeee mm, bias 15: max 57344, infinity 0x7c, NaN above
//   E8M0   eeeeeeee: 2^(code-127), NaN 0xff, no zero, no sign
//
// Source: OCP OFP8 1.0 and OCP Microscaling Formats (MX) 1.0. Encoders round to nearest even and
// saturate: a finite value or infinity beyond the largest one becomes the largest one. NaN gives
// the format's NaN; E2M1 has none, so callers reject NaN first.
#pragma once

#include <cstdint>

namespace curvq {

inline constexpr float kE2M1Max = 6.0f;
inline constexpr float kE4M3Max = 448.0f;
inline constexpr float kE5M2Max = 57344.0f;

float e2m1_to_f32(uint8_t code);  // low four bits
// Ties: .25->0 .75->1 1.25->1 1.75->2 2.5->2 3.5->4 5->4. Zero and values that round to zero
// give code 0, never 8 (minus zero).
uint8_t f32_to_e2m1(float value);

float e4m3_to_f32(uint8_t code);
uint8_t f32_to_e4m3(float value);

float e5m2_to_f32(uint8_t code);
uint8_t f32_to_e5m2(float value);

float e8m0_to_f32(uint8_t code);

}  // namespace curvq
