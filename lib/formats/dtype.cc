#include "curvq/formats/dtype.h"

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "curvq/core/error.h"
#include "curvq/formats/minifloat.h"
#include "formats/simd_clones.h"
#include "formats/small_float.h"

namespace curvq {
namespace {

using internal::Binary16;
using internal::select;

struct DTypeInfo {
  std::string_view name;
  size_t bytes;
};

// In the order of DType.
constexpr std::array<DTypeInfo, 16> kDTypes = {{{"F64", 8},
                                                {"F32", 4},
                                                {"F16", 2},
                                                {"BF16", 2},
                                                {"F8_E4M3", 1},
                                                {"F8_E5M2", 1},
                                                {"F8_E8M0", 1},
                                                {"I64", 8},
                                                {"I32", 4},
                                                {"I16", 2},
                                                {"I8", 1},
                                                {"U64", 8},
                                                {"U32", 4},
                                                {"U16", 2},
                                                {"U8", 1},
                                                {"BOOL", 1}}};
static_assert(static_cast<size_t>(DType::kBool) + 1 == kDTypes.size());

constexpr uint32_t kInfinityBits = 0x7f800000u;

constexpr uint32_t f16_to_f32_bits(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t finite = std::bit_cast<uint32_t>(Binary16::decode(magnitude));
  const uint32_t special = kInfinityBits | magnitude << 13;  // infinity and NaN keep their mantissa
  return select(magnitude < 0x7c00u, finite, special) | sign;
}

constexpr uint16_t f32_to_f16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // 65536 encodes as infinity; what lies between 65504 and it rounds to one of the two.
  constexpr uint32_t kLimit = std::bit_cast<uint32_t>(65536.0f);
  const uint32_t clamped = magnitude < kLimit ? magnitude : kLimit;
  const uint32_t rounded = Binary16::encode(std::bit_cast<float>(clamped));
  return static_cast<uint16_t>(select(magnitude > kInfinityBits, 0x7e00u, rounded) |
                               (bits >> 31 << 15));
}

constexpr uint16_t f32_to_bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>(select((bits & 0x7fffffffu) > kInfinityBits, quiet, rounded));
}

template <class T>
T load(const void* source, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(source) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(void* target, size_t index, T value) {
  std::memcpy(static_cast<char*>(target) + index * sizeof(T), &value, sizeof(T));
}

template <class T>
void convert_numbers(const void* source, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(load<T>(source, i));
}

CURVQ_SIMD_CLONES void convert_f16(const void* source, size_t count, float* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(f16_to_f32_bits(load<uint16_t>(source, i)));
  }
}

CURVQ_SIMD_CLONES void convert_bf16(const void* source, size_t count, float* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(source, i)) << 16);
  }
}

CURVQ_SIMD_CLONES void narrow_f16(const float* __restrict source, size_t count, void* out) {
  for (size_t i = 0; i < count; ++i) store(out, i, f32_to_f16_bits(source[i]));
}

CURVQ_SIMD_CLONES void narrow_bf16(const float* __restrict source, size_t count, void* out) {
  for (size_t i = 0; i < count; ++i) store(out, i, f32_to_bf16_bits(source[i]));
}

void convert_codes(float (*decode)(uint8_t), const void* source, size_t count, float* out) {
  std::array<float, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = decode(static_cast<uint8_t>(i));
  for (size_t i = 0; i < count; ++i) out[i] = table[load<uint8_t>(source, i)];
}

}  // namespace

size_t dtype_bytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }

std::string_view dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view safetensors_name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == safetensors_name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool is_floating_point(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

float f16_to_f32(uint16_t bits) { return std::bit_cast<float>(f16_to_f32_bits(bits)); }

uint16_t f32_to_f16(float value) { return f32_to_f16_bits(value); }

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) { return f32_to_bf16_bits(value); }

float round_to_dtype(float value, DType dtype) {
  if (dtype == DType::kF32) return value;
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  throw UnsupportedError("cannot round to " + std::string(dtype_name(dtype)) +
                         "; supported: F32, F16, BF16");
}

void convert_to_f32(DType dtype, const void* source, size_t count, float* out) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(out, source, count * sizeof(float));
      return;
    case DType::kF64:
      return convert_numbers<double>(source, count, out);
    case DType::kF16:
      return convert_f16(source, count, out);
    case DType::kBF16:
      return convert_bf16(source, count, out);
    case DType::kF8E4M3:
      return convert_codes(e4m3_to_f32, source, count, out);
    case DType::kF8E5M2:
      return convert_codes(e5m2_to_f32, source, count, out);
    case DType::kF8E8M0:
      return convert_codes(e8m0_to_f32, source, count, out);
    case DType::kI64:
      return convert_numbers<int64_t>(source, count, out);
    case DType::kI32:
      return convert_numbers<int32_t>(source, count, out);
    case DType::kI16:
      return convert_numbers<int16_t>(source, count, out);
    case DType::kI8:
      return convert_numbers<int8_t>(source, count, out);
    case DType::kU64:
      return convert_numbers<uint64_t>(source, count, out);
    case DType::kU32:
      return convert_numbers<uint32_t>(source, count, out);
    case DType::kU16:
      return convert_numbers<uint16_t>(source, count, out);
    case DType::kU8:
      return convert_numbers<uint8_t>(source, count, out);
    case DType::kBool:
      break;
  }
  throw UnsupportedError("cannot convert " + std::string(dtype_name(dtype)) +
                         " to float32; it holds no numbers");
}

void convert_from_f32(DType dtype, const float* source, size_t count, void* out) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(out, source, count * sizeof(float));
      return;
    case DType::kF64:
      for (size_t i = 0; i < count; ++i) store(out, i, static_cast<double>(source[i]));
      return;
    case DType::kF16:
      return narrow_f16(source, count, out);
    case DType::kBF16:
      return narrow_bf16(source, count, out);
    default:
      throw UnsupportedError("cannot convert float32 to " + std::string(dtype_name(dtype)) +
                             "; supported: F64, F32, F16, BF16");
  }
}

}  // namespace curvq
