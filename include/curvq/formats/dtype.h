// Storage types of tensors, named as in safetensors, and their exact conversion to float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace curvq {

enum class DType : uint8_t {
  kF64, kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kF8E8M0,
  kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool,
};

// Bytes of one element.
size_t dtype_bytes(DType dtype);
// The safetensors name: "F32", "BF16", "F8_E4M3", ...
std::string_view dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view safetensors_name);
// F64, F32, F16, BF16: what a weight can be stored in.
bool is_floating_point(DType dtype);

// IEEE binary16 and bfloat16; narrowing rounds to nearest even, overflow gives infinity, NaN
// stays NaN.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

// Rounds to the nearest value of `dtype` (F32, F16 or BF16) and back.
float round_to_dtype(float value, DType dtype);

// Converts `count` elements. `source` need not be aligned. Integers and FP8 types convert too
// (I64 and F64 round to nearest). Throws UnsupportedError for a dtype that has no numeric value.
void convert_to_f32(DType dtype, const void* source, size_t count, float* out);
// Throws UnsupportedError unless dtype is F32, F16, BF16 or F64.
void convert_from_f32(DType dtype, const float* source, size_t count, void* out);

}  // namespace curvq
