#include "curvq/formats/quantized_matrix.h"
#include "formats/codec.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

// With and without zero points: a null pointer would be tested in the loop.
template <class Codec>
[[gnu::always_inline]] inline void encode_loop(Codec codec, const float* __restrict weight,
                                               const float* __restrict scale, int64_t count,
                                               uint8_t* __restrict codes,
                                               float* __restrict rounded) {
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t code = codec.code(weight[i] / scale[i]);
    codes[i] = code;
    rounded[i] = codec.value(code) * scale[i];
  }
}

template <class Codec>
[[gnu::always_inline]] inline void encode_loop(Codec codec, const float* __restrict weight,
                                               const float* __restrict scale,
                                               const int8_t* __restrict zero_point, int64_t count,
                                               uint8_t* __restrict codes,
                                               float* __restrict rounded) {
  for (int64_t i = 0; i < count; ++i) {
    const float zero = zero_point[i];
    const uint8_t code = codec.code(weight[i] / scale[i] + zero);
    codes[i] = code;
    rounded[i] = (codec.value(code) - zero) * scale[i];
  }
}

CURVQ_SIMD_CLONES void encode_e2m1(const float* weight, const float* scale, int64_t count,
                                   uint8_t* codes, float* rounded) {
  encode_loop(internal::E2M1Codec{}, weight, scale, count, codes, rounded);
}

CURVQ_SIMD_CLONES void encode_e4m3(const float* weight, const float* scale, int64_t count,
                                   uint8_t* codes, float* rounded) {
  encode_loop(internal::E4M3Codec{}, weight, scale, count, codes, rounded);
}

CURVQ_SIMD_CLONES void encode_int4(const float* weight, const float* scale, const int8_t* zero,
                                   int64_t count, uint8_t* codes, float* rounded) {
  if (zero == nullptr) {
    encode_loop(internal::IntCodec<4>{}, weight, scale, count, codes, rounded);
  } else {
    encode_loop(internal::IntCodec<4>{}, weight, scale, zero, count, codes, rounded);
  }
}

CURVQ_SIMD_CLONES void encode_int8(const float* weight, const float* scale, const int8_t* zero,
                                   int64_t count, uint8_t* codes, float* rounded) {
  if (zero == nullptr) {
    encode_loop(internal::IntCodec<8>{}, weight, scale, count, codes, rounded);
  } else {
    encode_loop(internal::IntCodec<8>{}, weight, scale, zero, count, codes, rounded);
  }
}

}  // namespace

uint8_t encode(const Scheme& scheme, float weight, float scale, int zero_point) {
  return internal::with_codec(scheme, [&](auto codec) {
    const float quotient = weight / scale;
    return codec.code(scheme.symmetric ? quotient : quotient + static_cast<float>(zero_point));
  });
}

float decode(const Scheme& scheme, uint8_t code, float scale, int zero_point) {
  return internal::with_codec(scheme, [&](auto codec) {
    return (codec.value(code) - static_cast<float>(zero_point)) * scale;
  });
}

void encode_column(const Scheme& scheme, const float* weight, const float* scale,
                   const int8_t* zero_point, int64_t count, uint8_t* codes, float* rounded) {
  if (scheme.symmetric) zero_point = nullptr;
  if (scheme.element == ElementType::kE2M1) {
    encode_e2m1(weight, scale, count, codes, rounded);
  } else if (scheme.element == ElementType::kE4M3) {
    encode_e4m3(weight, scale, count, codes, rounded);
  } else if (scheme.bits == 4) {
    encode_int4(weight, scale, zero_point, count, codes, rounded);
  } else {
    encode_int8(weight, scale, zero_point, count, codes, rounded);
  }
}

}  // namespace curvq
