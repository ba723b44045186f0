#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "curvq/formats/dtype.h"
#include "curvq/formats/ggml_type.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

#define CURVQ_INLINE [[gnu::always_inline]] static inline

CURVQ_INLINE float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return f16_to_f32(bits);
}

// The low nibbles of `count` bytes, then the high ones.
template <int kCount>
CURVQ_INLINE void split_nibbles(const uint8_t* bytes, uint8_t* __restrict out) {
  for (int i = 0; i < kCount; ++i) out[i] = bytes[i] & 15;
  for (int i = 0; i < kCount; ++i) out[kCount + i] = bytes[i] >> 4;
}

// w = scale (q - offset), or scale q + minimum: one rounding an operation.
template <int kCount>
CURVQ_INLINE void scale_codes(const uint8_t* codes, int offset, float scale,
                              float* __restrict out) {
  for (int i = 0; i < kCount; ++i) out[i] = static_cast<float>(codes[i] - offset) * scale;
}

template <int kCount>
CURVQ_INLINE void scale_and_add(const uint8_t* codes, float scale, float minimum,
                                float* __restrict out) {
  for (int i = 0; i < kCount; ++i) out[i] = static_cast<float>(codes[i]) * scale + minimum;
}

// Adds bit i of `bits` to code i as its fifth bit.
CURVQ_INLINE void add_fifth_bits(const uint8_t* bits, uint8_t* __restrict codes) {
  uint32_t word;
  std::memcpy(&word, bits, sizeof(word));
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>((word >> i & 1) << 4);
}

CURVQ_INLINE void q4_0(const uint8_t* block, float* __restrict out) {
  uint8_t codes[32];
  split_nibbles<16>(block + 2, codes);
  scale_codes<32>(codes, 8, half_at(block), out);
}

CURVQ_INLINE void q4_1(const uint8_t* block, float* __restrict out) {
  uint8_t codes[32];
  split_nibbles<16>(block + 4, codes);
  scale_and_add<32>(codes, half_at(block), half_at(block + 2), out);
}

CURVQ_INLINE void q5_0(const uint8_t* block, float* __restrict out) {
  uint8_t codes[32];
  split_nibbles<16>(block + 6, codes);
  add_fifth_bits(block + 2, codes);
  scale_codes<32>(codes, 16, half_at(block), out);
}

CURVQ_INLINE void q5_1(const uint8_t* block, float* __restrict out) {
  uint8_t codes[32];
  split_nibbles<16>(block + 8, codes);
  add_fifth_bits(block + 4, codes);
  scale_and_add<32>(codes, half_at(block), half_at(block + 2), out);
}

CURVQ_INLINE void q8_0(const uint8_t* block, float* __restrict out) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

// Two bits an element: of each 32 bytes, the lowest two bits are the first 32 elements.
CURVQ_INLINE void split_pairs(const uint8_t* bytes, uint8_t* __restrict out) {
  for (int half = 0; half < 2; ++half) {
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 32; ++i)
        out[128 * half + 32 * part + i] = bytes[32 * half + i] >> (2 * part) & 3;
    }
  }
}

CURVQ_INLINE void q2_k(const uint8_t* block, float* __restrict out) {
  uint8_t codes[256];
  split_pairs(block + 16, codes);
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(block[g] & 15);
    const float minimum = dmin * static_cast<float>(block[g] >> 4);
    scale_and_add<16>(codes + 16 * g, scale, -minimum, out + 16 * g);
  }
}

CURVQ_INLINE void q3_k(const uint8_t* block, float* __restrict out) {
  uint8_t codes[256];
  split_pairs(block + 32, codes);
  for (int part = 0; part < 8; ++part) {
    for (int i = 0; i < 32; ++i)
      codes[32 * part + i] |= static_cast<uint8_t>((block[i] >> part & 1) << 2);
  }
  const uint8_t* packed = block + 96;
  const float d = half_at(block + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
    const int high = packed[8 + g % 4] >> (2 * (g / 4)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    scale_codes<16>(codes + 16 * g, 4, scale, out + 16 * g);
  }
}

// The 8 scales and 8 minima of Q4_K and Q5_K, 6 bits each in 12 bytes.
CURVQ_INLINE void unpack_scales(const uint8_t* packed, uint8_t* scales, uint8_t* minima) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 63;
    minima[i] = packed[4 + i] & 63;
    scales[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | (packed[i] >> 2 & 48));
    minima[4 + i] = static_cast<uint8_t>(packed[8 + i] >> 4 | (packed[4 + i] >> 2 & 48));
  }
}

// Codes of 8 groups with the scales and minima of the block.
CURVQ_INLINE void scale_groups(const uint8_t* block, const uint8_t* codes, float* __restrict out) {
  uint8_t scales[8], minima[8];
  unpack_scales(block + 4, scales, minima);
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int g = 0; g < 8; ++g) {
    const float minimum = dmin * static_cast<float>(minima[g]);
    scale_and_add<32>(codes + 32 * g, d * static_cast<float>(scales[g]), -minimum, out + 32 * g);
  }
}

CURVQ_INLINE void q4_k(const uint8_t* block, float* __restrict out) {
  uint8_t codes[256];
  for (int pair = 0; pair < 4; ++pair) split_nibbles<32>(block + 16 + 32 * pair, codes + 64 * pair);
  scale_groups(block, codes, out);
}

CURVQ_INLINE void q5_k(const uint8_t* block, float* __restrict out) {
  uint8_t codes[256];
  for (int pair = 0; pair < 4; ++pair) split_nibbles<32>(block + 48 + 32 * pair, codes + 64 * pair);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i)
      codes[32 * g + i] |= static_cast<uint8_t>((block[16 + i] >> g & 1) << 4);
  }
  scale_groups(block, codes, out);
}

CURVQ_INLINE void q6_k(const uint8_t* block, float* __restrict out) {
  uint8_t codes[256], high[256];
  for (int half = 0; half < 2; ++half) split_nibbles<64>(block + 64 * half, codes + 128 * half);
  split_pairs(block + 128, high);
  for (int i = 0; i < 256; ++i) codes[i] |= static_cast<uint8_t>(high[i] << 4);
  const float d = half_at(block + 208);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
    scale_codes<16>(codes + 16 * g, 32, scale, out + 16 * g);
  }
}

// Doubled E2M1 (minus zero is zero), and the 16 levels of IQ4_NL.
constexpr std::array<int8_t, 16> kDoubledE2M1 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};
constexpr std::array<int8_t, 16> kIq4Nl = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

// Both values of a byte of two nibbles.
constexpr std::array<std::array<float, 256>, 2> nibble_values(
    const std::array<int8_t, 16>& levels) {
  std::array<std::array<float, 256>, 2> values{};
  for (int byte = 0; byte < 256; ++byte) {
    values[0][byte] = levels[byte & 15];
    values[1][byte] = levels[byte >> 4];
  }
  return values;
}

constexpr auto kE2M1Values = nibble_values(kDoubledE2M1);
constexpr auto kIq4NlValues = nibble_values(kIq4Nl);

template <int kBytes>
CURVQ_INLINE void look_up(const std::array<std::array<float, 256>, 2>& values, const uint8_t* bytes,
                          float scale, float* __restrict out) {
  for (int i = 0; i < kBytes; ++i) out[i] = scale * values[0][bytes[i]];
  for (int i = 0; i < kBytes; ++i) out[kBytes + i] = scale * values[1][bytes[i]];
}

CURVQ_INLINE void iq4_nl(const uint8_t* block, float* __restrict out) {
  look_up<16>(kIq4NlValues, block + 2, half_at(block), out);
}

// Half of 2^(code - 127), the values being doubled; exact, in float32 subnormals too.
constexpr std::array<float, 256> e8m0_halves() {
  std::array<float, 256> values{};
  for (uint32_t code = 0; code < 256; ++code)
    values[code] = std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1) << 23);
  return values;
}

// Half of an unsigned E4M3; the highest bit is ignored, 0x7f is 0.
constexpr std::array<float, 256> ue4m3_halves() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) / 1024.0f;
    for (int i = 1; i < exponent; ++i) value *= 2;
    values[code] = code == 0x7f ? 0.0f : value;
  }
  return values;
}

constexpr auto kE8M0Halves = e8m0_halves();
constexpr auto kUe4m3Halves = ue4m3_halves();

CURVQ_INLINE void mxfp4(const uint8_t* block, float* __restrict out) {
  look_up<16>(kE2M1Values, block + 1, kE8M0Halves[block[0]], out);
}

CURVQ_INLINE void nvfp4(const uint8_t* block, float* __restrict out) {
  for (int g = 0; g < 4; ++g)
    look_up<8>(kE2M1Values, block + 4 + 8 * g, kUe4m3Halves[block[g]], out + 16 * g);
}

#define CURVQ_DECODE_BLOCKS(decode, elements, bytes)                                              \
  CURVQ_SIMD_CLONES void decode##_blocks(const uint8_t* source, int64_t num_blocks, float* out) { \
    for (int64_t b = 0; b < num_blocks; ++b) decode(source + b * (bytes), out + b * (elements));  \
  }
CURVQ_DECODE_BLOCKS(q4_0, 32, 18)
CURVQ_DECODE_BLOCKS(q4_1, 32, 20)
CURVQ_DECODE_BLOCKS(q5_0, 32, 22)
CURVQ_DECODE_BLOCKS(q5_1, 32, 24)
CURVQ_DECODE_BLOCKS(q8_0, 32, 34)
CURVQ_DECODE_BLOCKS(q2_k, 256, 84)
CURVQ_DECODE_BLOCKS(q3_k, 256, 110)
CURVQ_DECODE_BLOCKS(q4_k, 256, 144)
CURVQ_DECODE_BLOCKS(q5_k, 256, 176)
CURVQ_DECODE_BLOCKS(q6_k, 256, 210)
CURVQ_DECODE_BLOCKS(iq4_nl, 32, 18)
CURVQ_DECODE_BLOCKS(mxfp4, 32, 17)
CURVQ_DECODE_BLOCKS(nvfp4, 64, 36)
#undef CURVQ_DECODE_BLOCKS
#undef CURVQ_INLINE

}  // namespace

void decode_ggml_blocks(GgmlType type, const void* source, int64_t num_blocks, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(source);
  switch (type) {
    case GgmlType::kQ4_0:
      return q4_0_blocks(bytes, num_blocks, out);
    case GgmlType::kQ4_1:
      return q4_1_blocks(bytes, num_blocks, out);
    case GgmlType::kQ5_0:
      return q5_0_blocks(bytes, num_blocks, out);
    case GgmlType::kQ5_1:
      return q5_1_blocks(bytes, num_blocks, out);
    case GgmlType::kQ8_0:
      return q8_0_blocks(bytes, num_blocks, out);
    case GgmlType::kQ2_K:
      return q2_k_blocks(bytes, num_blocks, out);
    case GgmlType::kQ3_K:
      return q3_k_blocks(bytes, num_blocks, out);
    case GgmlType::kQ4_K:
      return q4_k_blocks(bytes, num_blocks, out);
    case GgmlType::kQ5_K:
      return q5_k_blocks(bytes, num_blocks, out);
    case GgmlType::kQ6_K:
      return q6_k_blocks(bytes, num_blocks, out);
    case GgmlType::kIQ4_NL:
      return iq4_nl_blocks(bytes, num_blocks, out);
    case GgmlType::kMXFP4:
      return mxfp4_blocks(bytes, num_blocks, out);
    case GgmlType::kNVFP4:
      return nvfp4_blocks(bytes, num_blocks, out);
    default:
      throw std::logic_error(std::string("not in blocks: ") + ggml_type_info(type).name);
  }
}

}  // namespace curvq
