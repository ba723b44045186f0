#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/scale_rules.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

CURVQ_SIMD_CLONES uint32_t max_magnitude_bits(const float* values, int64_t count) {
  // Without their sign, float32 bits order as the magnitudes do, with NaN above infinity.
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

struct Range {
  float min, max;  // zero included
};

// Maps float32 bits to integers of the same order, and back: negative floats order backwards.
constexpr int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

CURVQ_SIMD_CLONES Range range_of(const float* values, int64_t count) {
  int32_t smallest = 0, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t key = ordered(std::bit_cast<int32_t>(values[i]));
    smallest = key < smallest ? key : smallest;
    largest = key > largest ? key : largest;
  }
  return {std::bit_cast<float>(ordered(smallest)), std::bit_cast<float>(ordered(largest))};
}

void check_finite(const float* weight, int64_t rows, int64_t cols) {
  std::vector<float> row_amax(rows);
  parallel_for(0, rows, [&](int64_t r) { row_amax[r] = max_abs(weight + r * cols, cols); });
  for (int64_t r = 0; r < rows; ++r) {
    if (std::isfinite(row_amax[r])) continue;
    const float* row = weight + r * cols;
    const float* bad = std::find_if(row, row + cols, [](float w) { return !std::isfinite(w); });
    throw NumericalError(format(
        "weight is %g at row %ld, column %ld; only finite weights can be quantized, check the file",
        static_cast<double>(*bad), long{r}, static_cast<long>(bad - row)));
  }
}

// Whether `scheme.rule` says how to scale `scheme`.
void check_rule(const Scheme& scheme) {
  if (scheme.rule == ScaleRule::kCurvq || scheme.rule == ScaleRule::kCompressedTensors) return;
  throw UnsupportedError("scale rule " + std::string(scale_rule_name(scheme.rule)) +
                         " has no arithmetic for " + scheme.name() +
                         "; supported: curvq, compressed-tensors");
}

void check_scales(const ScaleGrid& grid) {
  for (int64_t i = 0; i < grid.rows * grid.groups; ++i) {
    if (std::isfinite(grid.scales[i])) continue;
    throw NumericalError(
        format("row %ld, group %ld: the scale is above the largest %s; use scale dtype BF16 or F32",
               static_cast<long>(i / grid.groups), static_cast<long>(i % grid.groups),
               std::string(dtype_name(grid.scheme.scale_dtype)).c_str()));
  }
}

void fill_row(const float* row, int64_t r, ScaleGrid& grid) {
  const Scheme& scheme = grid.scheme;
  const int64_t group_size = scheme.group_size == 0 ? grid.cols : scheme.group_size;
  for (int64_t g = 0; g < grid.groups; ++g) {
    const float* group = row + g * group_size;
    const int64_t i = r * grid.groups + g;
    switch (scheme.scale_type) {
      case ScaleType::kE4M3:
        grid.scale_codes[i] =
            internal::nvfp4_scale_code(scheme, grid.global_divisor, max_abs(group, group_size));
        grid.scales[i] = e4m3_to_f32(grid.scale_codes[i]) / grid.global_divisor;
        break;
      case ScaleType::kE8M0:
        grid.scale_codes[i] = internal::mxfp4_scale_code(scheme, max_abs(group, group_size));
        grid.scales[i] = e8m0_to_f32(grid.scale_codes[i]);
        break;
      case ScaleType::kFloat: {
        const Range range = range_of(group, group_size);
        const internal::AffineScale affine = internal::affine_scale(scheme, range.min, range.max);
        grid.scales[i] = affine.scale;
        if (!scheme.symmetric) grid.zero_points[i] = static_cast<int8_t>(affine.zero_point);
        break;
      }
    }
  }
}

}  // namespace

float max_abs(const float* values, int64_t count) {
  return std::bit_cast<float>(max_magnitude_bits(values, count));
}

ScaleGrid make_scale_grid(const float* weight, int64_t rows, int64_t cols, const Scheme& scheme,
                          float tensor_amax) {
  if (rows < 0 || cols < 0) {
    throw UsageError(format("weight of %ld rows and %ld columns; sizes cannot be negative",
                            long{rows}, long{cols}));
  }
  scheme.validate();
  check_rule(scheme);
  ScaleGrid grid;
  grid.scheme = scheme;
  grid.rows = rows;
  grid.cols = cols;
  grid.groups = scheme.num_groups(cols);
  check_finite(weight, rows, cols);
  if (scheme.scale_type == ScaleType::kE4M3) {
    if (!std::isfinite(tensor_amax) || tensor_amax < 0) {
      throw NumericalError(
          format("largest magnitude %g of the tensor; it must be finite and not "
                 "negative, check the layers that share the scale",
                 static_cast<double>(tensor_amax)));
    }
    grid.global_divisor = internal::nvfp4_divisor(scheme, tensor_amax);
  }
  grid.scales.resize(rows * grid.groups);
  if (scheme.scale_type != ScaleType::kFloat) grid.scale_codes.resize(rows * grid.groups);
  if (!scheme.symmetric) grid.zero_points.resize(rows * grid.groups);
  parallel_for(0, rows, [&](int64_t r) { fill_row(weight + r * cols, r, grid); });
  check_scales(grid);
  return grid;
}

}  // namespace curvq
