#include "formats/scale_grid.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/minifloat.h"
#include "curvq/formats/quantized_matrix.h"
#include "formats/codec.h"
#include "formats/group_loops.h"
#include "formats/row_loop.h"
#include "formats/rules/rule.h"
#include "formats/simd_clones.h"

namespace curvq {
namespace {

constexpr ScaleRule kScaleRules[] = {ScaleRule::kCurvq,    ScaleRule::kCompressedTensors,
                                     ScaleRule::kModelOpt, ScaleRule::kTorchAo,
                                     ScaleRule::kLlamaCpp, ScaleRule::kFourOverSix};

[[noreturn]] void throw_not_finite(const float* row, int64_t r, int64_t cols) {
  const float* bad = std::find_if(row, row + cols, [](float w) { return !std::isfinite(w); });
  throw NumericalError(format(
      "weight is %g at row %ld, column %ld; only finite weights can be quantized, check the file",
      static_cast<double>(*bad), long{r}, static_cast<long>(bad - row)));
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

CURVQ_SIMD_CLONES void decode_scales(const uint8_t* __restrict codes, int64_t count, float divisor,
                                     float* __restrict scales) {
  for (int64_t i = 0; i < count; ++i) scales[i] = internal::E4M3Codec{}.value(codes[i]) / divisor;
}

// amax: largest magnitudes of the row's groups.
void fill_row(const float* row, const float* amax, int64_t r, ScaleGrid& grid) {
  const Scheme& scheme = grid.scheme;
  const internal::Rule& rule = internal::rule_of(scheme.rule);
  float* scales = grid.scales.data() + r * grid.groups;
  uint8_t* codes = grid.scale_codes.data() + r * grid.groups;
  if (scheme.scale_type == ScaleType::kE4M3) {
    rule.nvfp4_scale_codes(grid, row, amax, codes);
    return decode_scales(codes, grid.groups, grid.global_divisor, scales);
  }
  if (scheme.scale_type == ScaleType::kE8M0) {
    rule.mxfp4_scale_codes(grid, row, amax, codes);
    for (int64_t g = 0; g < grid.groups; ++g) scales[g] = e8m0_to_f32(codes[g]);
    return;
  }
  const int64_t group_size = scheme.group_size == 0 ? grid.cols : scheme.group_size;
  for (int64_t g = 0; g < grid.groups; ++g) {
    const internal::AffineScale affine =
        rule.affine_scale(scheme, row + g * group_size, group_size);
    scales[g] = affine.scale;
    if (!scheme.symmetric)
      grid.zero_points[r * grid.groups + g] = static_cast<int8_t>(affine.zero_point);
  }
}

}  // namespace

ScaleGrid internal::empty_grid(int64_t rows, int64_t cols, const Scheme& scheme) {
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
  grid.scales.resize(rows * grid.groups);
  if (scheme.scale_type != ScaleType::kFloat) grid.scale_codes.resize(rows * grid.groups);
  if (!scheme.symmetric) grid.zero_points.resize(rows * grid.groups);
  return grid;
}

void internal::fill_grid(const float* weight, float tensor_amax, ScaleGrid& grid,
                         const std::function<void(int64_t)>& done) {
  const int64_t rows = grid.rows, cols = grid.cols;
  const bool coded = grid.scheme.scale_type == ScaleType::kE4M3;
  const bool usable = !coded || (std::isfinite(tensor_amax) && tensor_amax >= 0);
  if (coded && usable) {
    grid.tensor_amax = tensor_amax;
    grid.global_divisor = rule_of(grid.scheme.rule).nvfp4_divisor(grid.scheme, tensor_amax);
  }
  std::vector<char> finite(rows);
  for_each_row(rows, cols, [&](int64_t r) {
    const float* row = weight + r * cols;
    const auto amax = std::make_unique_for_overwrite<float[]>(grid.groups);
    const int64_t group_size = grid.scheme.group_size == 0 ? cols : grid.scheme.group_size;
    group_magnitudes(row, grid.groups, group_size, amax.get());
    finite[r] = std::isfinite(max_abs(amax.get(), grid.groups));
    if (!finite[r] || !usable) return;
    fill_row(row, amax.get(), r, grid);
    if (done) done(r);
  });
  for (int64_t r = 0; r < rows; ++r) {
    if (!finite[r]) throw_not_finite(weight + r * cols, r, cols);
  }
  if (!usable) {
    throw NumericalError(
        format("largest magnitude %g of the tensor; it must be finite and not "
               "negative, check the layers that share the scale",
               static_cast<double>(tensor_amax)));
  }
  check_scales(grid);
}

ScaleGrid make_scale_grid(const float* weight, int64_t rows, int64_t cols, const Scheme& scheme,
                          float tensor_amax) {
  ScaleGrid grid = internal::empty_grid(rows, cols, scheme);
  internal::fill_grid(weight, tensor_amax, grid, nullptr);
  return grid;
}

}  // namespace curvq
