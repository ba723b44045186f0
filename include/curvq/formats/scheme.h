// What a linear layer is quantized to: its weight's element, scales, groups, and whose arithmetic
// decides; and what its inputs are rounded to as it runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "curvq/formats/dtype.h"

namespace curvq {

enum class ElementType : uint8_t { kE2M1, kE4M3, kInt };

// kFloat: one float32/float16/bfloat16 scale a group. kE8M0: a power of two a group (MXFP4).
// kE4M3: an E4M3 scale a group times one float32 scale of the tensor (NVFP4).
enum class ScaleType : uint8_t { kFloat, kE8M0, kE4M3 };

// Whose arithmetic decides scales and codes, to the bit. kCurvq is float32 throughout. For float
// scales there are kCurvq, kCompressedTensors and, for symmetric integers in groups of 32 (Q4_0,
// Q8_0), kLlamaCpp; kFourOverSix is for NVFP4 alone.
enum class ScaleRule : uint8_t { kCurvq, kCompressedTensors, kModelOpt, kTorchAo, kLlamaCpp, kFourOverSix };

// How the exponent of an E8M0 scale comes from the group's largest magnitude A:
//   kFloor floor(log2 A)-2   kEven the same, one up where the mantissa is >= 1.75
//   kCeil  ceil(log2 A)-2    kRceil ceil(log2(A/6))
enum class MxRule : uint8_t { kFloor, kEven, kCeil, kRceil };

// What the inputs of a quantized layer are rounded to as it runs; see input_rounding.h.
//   kNone            nothing, they stay as they are
//   kNvfp4, kMxfp4   as weights are; NVFP4's tensor scale comes from calibration
//   kFp8, kInt8      one scale a token, found as it comes
//   kFp8Tensor       one scale for all tokens, from calibration
enum class InputFormat : uint8_t { kNone, kNvfp4, kMxfp4, kFp8, kFp8Tensor, kInt8 };

struct Scheme {
  ElementType element = ElementType::kE2M1;
  int bits = 4;                         // of one element: 4 or 8
  ScaleType scale_type = ScaleType::kE4M3;
  int64_t group_size = 16;              // consecutive elements of a row that share a scale; 0: a whole row
  bool symmetric = true;                // integers only: false adds a zero point a group
  DType scale_dtype = DType::kF32;      // kFloat scales are rounded to this before the codes are chosen
  MxRule mx_rule = MxRule::kEven;       // kE8M0 scales of kCurvq and kTorchAo; other rules have their own
  ScaleRule rule = ScaleRule::kCurvq;
  DType source_dtype = DType::kF32;     // kCompressedTensors computes in the weight's own dtype
  InputFormat inputs = InputFormat::kNone;  // one that servers have kernels for; see validate()

  static Scheme nvfp4();
  static Scheme mxfp4();
  static Scheme int4(int64_t group_size = 128, bool symmetric = true);
  static Scheme int8(int64_t group_size = 0, bool symmetric = true);
  static Scheme fp8(int64_t group_size = 0);
  // By name: nvfp4, mxfp4, int4, int8, fp8. Throws UsageError listing the names.
  static Scheme parse(std::string_view name);

  // Inverse of parse().
  std::string name() const;
  // For people: "int4 g128 asymmetric".
  std::string describe() const;
  // Throws UsageError naming the field, its value and what is allowed. Of inputs: nvfp4 and mxfp4 to
  // weights of the same, fp8 and fp8-tensor to fp8, fp8 to symmetric int4 in groups, int8 to
  // symmetric int8 with one scale a row.
  void validate() const;

  // Groups of a row of `cols` elements; throws UsageError naming the sizes that divide if
  // group_size does not divide cols.
  int64_t num_groups(int64_t cols) const;
  int64_t group_of(int64_t col) const { return group_size == 0 ? 0 : col / group_size; }
  bool divides(int64_t cols) const { return group_size == 0 || cols % group_size == 0; }

  // Smallest and largest integer code (kInt): -8..7, -128..127.
  int min_code() const { return -(1 << (bits - 1)); }
  int max_code() const { return (1 << (bits - 1)) - 1; }

  // Stored bytes of a [rows, cols] matrix: codes, scales, zero points, tensor scale, input scale.
  int64_t stored_bytes(int64_t rows, int64_t cols) const;
  // 8 * stored_bytes / (rows * cols).
  double bits_per_weight(int64_t rows, int64_t cols) const;

  bool operator==(const Scheme&) const = default;
};

// Names as on the command line; throw UsageError listing what is allowed.
ScaleRule parse_scale_rule(std::string_view name);  // curvq, compressed-tensors, modelopt, ...
std::string_view scale_rule_name(ScaleRule rule);
MxRule parse_mx_rule(std::string_view name);        // floor, even, ceil, rceil
std::string_view mx_rule_name(MxRule rule);
InputFormat parse_input_format(std::string_view name);  // none, nvfp4, mxfp4, fp8, fp8-tensor, int8
std::string_view input_format_name(InputFormat format);

}  // namespace curvq
