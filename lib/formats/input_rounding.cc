#include "curvq/formats/input_rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/codec.h"
#include "formats/group_loops.h"
#include "formats/row_loop.h"
#include "formats/rules/rule.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

template <class Codec>
[[gnu::always_inline]] inline void round_loop(Codec codec, const float* x, int64_t count,
                                              float scale, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = codec.value(codec.code(x[i] / scale)) * scale;
}

CURVQ_SIMD_CLONES void round_e2m1(const float* x, int64_t count, float scale, float* out) {
  round_loop(internal::E2M1Codec{}, x, count, scale, out);
}

CURVQ_SIMD_CLONES void round_e4m3(const float* x, int64_t count, float scale, float* out) {
  round_loop(internal::E4M3Codec{}, x, count, scale, out);
}

CURVQ_SIMD_CLONES void round_int8(const float* x, int64_t count, float scale, float* out) {
  round_loop(internal::IntCodec<8>{}, x, count, scale, out);
}

// What values with this largest magnitude are divided by.
float scale_of(InputFormat format, float amax, float stored) {
  if (!std::isfinite(amax)) return std::numeric_limits<float>::quiet_NaN();
  const auto positive = [](float scale) {
    return scale > 0 ? scale : internal::epsilon(DType::kF32);
  };
  switch (format) {
    case InputFormat::kNvfp4: {
      const uint8_t code = f32_to_e4m3(stored * (amax / kE2M1Max));
      return e4m3_to_f32(code == 0 ? internal::kZeroBlockCode : code) / stored;
    }
    case InputFormat::kMxfp4:
      return e8m0_to_f32(internal::e8m0_scale_code(MxRule::kEven, amax));
    case InputFormat::kFp8:
      return positive(amax / kE4M3Max);
    case InputFormat::kInt8:
      return positive(amax / 127.5f);
    case InputFormat::kFp8Tensor:
    case InputFormat::kNone:
      break;
  }
  return stored;
}

}  // namespace

bool has_input_scale(InputFormat format) {
  return format == InputFormat::kNvfp4 || format == InputFormat::kFp8Tensor;
}

float input_scale(const Scheme& scheme, float amax) {
  if (!has_input_scale(scheme.inputs)) return 0;
  if (scheme.inputs == InputFormat::kNvfp4)
    return internal::compressed_tensors_rule().nvfp4_divisor(Scheme::nvfp4(), amax);
  const float scale = round_to_dtype(amax / kE4M3Max, scheme.scale_dtype);
  return std::isfinite(scale) && scale > 0 ? scale : 1.0f;
}

int64_t input_group(InputFormat format) {
  if (format == InputFormat::kNvfp4) return 16;
  return format == InputFormat::kMxfp4 ? 32 : 0;
}

void round_inputs(InputFormat format, float scale, const float* x, int64_t rows, int64_t cols,
                  float* out) {
  const int64_t group = input_group(format) > 0 ? input_group(format) : cols;
  if (group > 0 && cols % group != 0) {
    throw UsageError(curvq::format("groups of %lld inputs do not divide %lld features",
                                   static_cast<long long>(group), static_cast<long long>(cols)));
  }
  if (format == InputFormat::kNone) {
    if (out != x) std::copy(x, x + rows * cols, out);
    return;
  }
  const auto round = format == InputFormat::kInt8 ? round_int8
                     : input_group(format) > 0    ? round_e2m1
                                                  : round_e4m3;
  const int64_t groups = group > 0 ? cols / group : 0;
  internal::for_each_row(rows, cols, [&](int64_t r) {
    const auto amax = std::make_unique_for_overwrite<float[]>(groups);
    internal::group_magnitudes(x + r * cols, groups, group, amax.get());
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = r * cols + g * group;
      round(x + begin, group, scale_of(format, amax[g], scale), out + begin);
    }
  });
}

}  // namespace curvq
