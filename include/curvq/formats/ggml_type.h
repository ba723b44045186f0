// The tensor types of GGUF files: blocks of codes with their scales.
//
//   type    elements bytes  block, in this order; w is an element
//   Q4_0          32    18  f16 d, 16 bytes of nibbles: w = d (q - 8)
//   Q4_1          32    20  f16 d, f16 m, 16 bytes of nibbles: w = d q + m
//   Q5_0          32    22  f16 d, 32 fifth bits, 16 bytes of nibbles: w = d (q - 16)
//   Q5_1          32    24  f16 d, f16 m, 32 fifth bits, 16 bytes of nibbles: w = d q + m
//   Q8_0          32    34  f16 d, 32 bytes: w = d q
//   Q2_K         256    84  16 scales and minima of 4 bits, 64 bytes of 2-bit codes, f16 d, f16 dmin
//   Q3_K         256   110  32 bytes of third bits, 64 bytes of 2-bit codes, 16 scales of 6 bits, f16 d
//   Q4_K         256   144  f16 d, f16 dmin, 8 scales and minima of 6 bits, 128 bytes of nibbles
//   Q5_K         256   176  as Q4_K, with 32 bytes of fifth bits before the nibbles
//   Q6_K         256   210  128 bytes of low nibbles, 64 bytes of 2 high bits, 16 int8 scales, f16 d
//   IQ4_NL        32    18  f16 d, 16 bytes of nibbles: w = d table[q]
//   MXFP4         32    17  E8M0 scale, 16 bytes of E2M1
//   NVFP4         64    36  4 unsigned E4M3 scales, one for 16 elements, 32 bytes of E2M1
//
// Nibbles: the low ones of n bytes are elements 0 to n-1, the high ones n to 2n-1 (NVFP4: of each
// 8 bytes). Source: ggml's block structures and the reference decoder of the `gguf` package.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace curvq {

enum class GgmlType : uint32_t {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8,
  kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kIQ4_NL = 20,
  kI8 = 24, kI16 = 25, kI32 = 26, kI64 = 27, kF64 = 28, kBF16 = 30, kMXFP4 = 39, kNVFP4 = 40,
};

// Elements and bytes of a block; plain types have blocks of one element.
struct GgmlTypeInfo {
  GgmlType type;
  const char* name;  // "Q4_K"
  int64_t block_elements, block_bytes;
  bool is_plain() const { return block_elements == 1; }
};

// nullopt for a number that is no type that curvq reads.
std::optional<GgmlTypeInfo> find_ggml_type(uint32_t number);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
// "F32, F16, Q4_0, ...", for messages.
std::string ggml_type_names();

// Elements of the largest block.
inline constexpr int64_t kMaxGgmlBlock = 256;

// Decodes `num_blocks` blocks (not aligned) to float32, with the operations and roundings of the
// `gguf` package, so that results are equal to the bit. Types with blocks of more than one element
// only; an NVFP4 tensor's own scale is not applied. Throws std::logic_error for plain types.
void decode_ggml_blocks(GgmlType type, const void* source, int64_t num_blocks, float* out);

}  // namespace curvq
