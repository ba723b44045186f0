#include <algorithm>
#include <cmath>
#include <string>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/row_loop.h"
#include "formats/rules/rule.h"

namespace curvq {
namespace {

constexpr ScaleRule kScaleRules[] = {ScaleRule::kCurvq,    ScaleRule::kCompressedTensors,
                                     ScaleRule::kModelOpt, ScaleRule::kTorchAo,
                                     ScaleRule::kLlamaCpp, ScaleRule::kFourOverSix};

void check_finite(const float* weight, int64_t rows, int64_t cols) {
  std::vector<float> row_amax(rows);
  internal::for_each_row(rows, cols,
                         [&](int64_t r) { row_amax[r] = max_abs(weight + r * cols, cols); });
  for (int64_t r = 0; r < rows; ++r) {
    if (std::isfinite(row_amax[r])) continue;
    const float* row = weight + r * cols;
    const float* bad = std::find_if(row, row + cols, [](float w) { return !std::isfinite(w); });
    throw NumericalError(format(
        "weight is %g at row %ld, column %ld; only finite weights can be quantized, check the file",
        static_cast<double>(*bad), long{r}, static_cast<long>(bad - row)));
  }
}

void check_rule(const Scheme& scheme) {
  if (internal::rule_of(scheme.rule).supports(scheme)) return;
  std::string supported;
  for (const ScaleRule rule : kScaleRules) {
    if (!internal::rule_of(rule).supports(scheme)) continue;
    supported.append(supported.empty() ? "" : ", ").append(scale_rule_name(rule));
  }
  throw UnsupportedError("scale rule " + std::string(scale_rule_name(scheme.rule)) +
                         " has no arithmetic for " + scheme.describe() +
                         "; supported: " + supported);
}

void check_scales(const ScaleGrid& grid) {
  for (int64_t i = 0; i < grid.rows * grid.groups; ++i) {
    if (std::isfinite(grid.scales[i])) continue;
    const bool half = grid.scheme.scale_dtype == DType::kF16;
    throw NumericalError(format("row %ld, group %ld: the scale is above the largest %s; use %s",
                                static_cast<long>(i / grid.groups),
                                static_cast<long>(i % grid.groups),
                                std::string(dtype_name(grid.scheme.scale_dtype)).c_str(),
                                half ? "scale dtype BF16 or F32" : "scale rule curvq"));
  }
}

void fill_row(const float* row, int64_t r, ScaleGrid& grid) {
  const Scheme& scheme = grid.scheme;
  const internal::Rule& rule = internal::rule_of(scheme.rule);
  const int64_t group_size = scheme.group_size == 0 ? grid.cols : scheme.group_size;
  for (int64_t g = 0; g < grid.groups; ++g) {
    const float* group = row + g * group_size;
    const int64_t i = r * grid.groups + g;
    switch (scheme.scale_type) {
      case ScaleType::kE4M3:
        grid.scale_codes[i] = rule.nvfp4_scale_code(grid, group);
        grid.scales[i] = e4m3_to_f32(grid.scale_codes[i]) / grid.global_divisor;
        break;
      case ScaleType::kE8M0:
        grid.scale_codes[i] = rule.mxfp4_scale_code(scheme, group);
        grid.scales[i] = e8m0_to_f32(grid.scale_codes[i]);
        break;
      case ScaleType::kFloat: {
        const internal::AffineScale affine = rule.affine_scale(scheme, group, group_size);
        grid.scales[i] = affine.scale;
        if (!scheme.symmetric) grid.zero_points[i] = static_cast<int8_t>(affine.zero_point);
        break;
      }
    }
  }
}

}  // namespace

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
    grid.tensor_amax = tensor_amax;
    grid.global_divisor = internal::rule_of(scheme.rule).nvfp4_divisor(scheme, tensor_amax);
  }
  grid.scales.resize(rows * grid.groups);
  if (scheme.scale_type != ScaleType::kFloat) grid.scale_codes.resize(rows * grid.groups);
  if (!scheme.symmetric) grid.zero_points.resize(rows * grid.groups);
  internal::for_each_row(rows, cols, [&](int64_t r) { fill_row(weight + r * cols, r, grid); });
  check_scales(grid);
  return grid;
}

}  // namespace curvq
