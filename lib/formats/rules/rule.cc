#include "formats/rules/rule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "curvq/core/error.h"
#include "formats/group_loops.h"
#include "formats/simd_clones.h"

namespace curvq::internal {
namespace {

CURVQ_SIMD_CLONES void divide_and_add(const float* __restrict weight, float scale, float zero_point,
                                      int64_t count, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = weight[i] / scale + zero_point;
}

[[noreturn]] void throw_unsupported(const Scheme& scheme) {
  throw UnsupportedError("scale rule " + std::string(scale_rule_name(scheme.rule)) +
                         " has no arithmetic for " + scheme.name());
}

}  // namespace

float Rule::nvfp4_divisor(const Scheme& scheme, float) const { throw_unsupported(scheme); }

uint8_t Rule::nvfp4_scale_code(const ScaleGrid& grid, const float*) const {
  throw_unsupported(grid.scheme);
}

void Rule::nvfp4_scale_codes(const ScaleGrid& grid, const float* row, const float*,
                             uint8_t* codes) const {
  for (int64_t g = 0; g < grid.groups; ++g) codes[g] = nvfp4_scale_code(grid, row + 16 * g);
}

void Rule::mxfp4_scale_codes(const ScaleGrid& grid, const float* row, const float*,
                             uint8_t* codes) const {
  for (int64_t g = 0; g < grid.groups; ++g) codes[g] = mxfp4_scale_code(grid.scheme, row + 32 * g);
}

uint8_t Rule::mxfp4_scale_code(const Scheme& scheme, const float*) const {
  throw_unsupported(scheme);
}

AffineScale Rule::affine_scale(const Scheme& scheme, const float*, int64_t) const {
  throw_unsupported(scheme);
}

void Rule::quotients(const ScaleGrid& grid, int64_t row, int64_t group, const float* weight,
                     int64_t size, float* out) const {
  const float scale = grid.scale(row, group);
  if (grid.scheme.symmetric) return divide_groups(weight, &scale, 1, size, out);
  divide_and_add(weight, scale, static_cast<float>(grid.zero_point(row, group)), size, out);
}

void Rule::row_quotients(const ScaleGrid& grid, int64_t row, const float* weight,
                         float* out) const {
  const int64_t size = grid.scheme.group_size == 0 ? grid.cols : grid.scheme.group_size;
  for (int64_t g = 0; g < grid.groups; ++g)
    quotients(grid, row, g, weight + g * size, size, out + g * size);
}

void Rule::divide_row(const ScaleGrid& grid, int64_t row, const float* weight, float* out) {
  const int64_t size = grid.scheme.group_size == 0 ? grid.cols : grid.scheme.group_size;
  const float* scales = grid.scales.data() + row * grid.groups;
  if (grid.scheme.symmetric) return divide_groups(weight, scales, grid.groups, size, out);
  for (int64_t g = 0; g < grid.groups; ++g) {
    divide_and_add(weight + g * size, scales[g], static_cast<float>(grid.zero_point(row, g)), size,
                   out + g * size);
  }
}

const Rule& rule_of(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::kCompressedTensors:
      return compressed_tensors_rule();
    case ScaleRule::kModelOpt:
      return modelopt_rule();
    case ScaleRule::kTorchAo:
      return torchao_rule();
    case ScaleRule::kLlamaCpp:
      return llama_cpp_rule();
    case ScaleRule::kFourOverSix:
      return four_over_six_rule();
    case ScaleRule::kCurvq:
      break;
  }
  return curvq_rule();
}

bool has_normal_tensor_scale(float tensor_amax) { return tensor_amax / kNvfp4Range >= 0x1p-126f; }

uint8_t e8m0_scale_code(MxRule rule, float amax) {
  // The biased exponent above 23 bits of mantissa.
  const uint32_t bits = std::bit_cast<uint32_t>(amax);
  uint32_t exponent = bits >> 23;
  const uint32_t mantissa = bits & 0x7fffffu;
  switch (rule) {
    case MxRule::kFloor:
      break;
    case MxRule::kEven:  // a mantissa of 1.75 and above carries into the exponent
      exponent = (bits + 0x200000u) >> 23;
      break;
    case MxRule::kCeil:
      exponent += mantissa > 0;
      break;
    case MxRule::kRceil:  // 6 = 1.5 * 2^2
      exponent += mantissa > 0x400000u;
      break;
  }
  return static_cast<uint8_t>(exponent > 2 ? exponent - 2 : 0);
}

float rounded_log2(float magnitude) {
  return static_cast<float>(std::log2(static_cast<double>(magnitude)));
}

uint8_t e8m0_from_log2(float exponent) {
  return static_cast<uint8_t>(std::clamp(exponent, -127.0f, 127.0f) + 127.0f);
}

void ties_to_zero(int64_t count, float* quotients) {
  for (int64_t i = 0; i < count; ++i) {
    // The other ties, .25, 1.25, 2.5 and 5, go towards zero when they go to even.
    const float magnitude = std::fabs(quotients[i]);
    if (magnitude == 0.75f || magnitude == 1.75f || magnitude == 3.5f) {
      quotients[i] = std::nextafter(quotients[i], 0.0f);
    }
  }
}

float epsilon(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-10f;
  return dtype == DType::kBF16 ? 0x1p-7f : 0x1p-23f;
}

float smallest_positive(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-24f;
  return dtype == DType::kBF16 ? 0x1p-133f : std::numeric_limits<float>::denorm_min();
}

float smallest_normal(DType dtype) { return dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f; }

}  // namespace curvq::internal
