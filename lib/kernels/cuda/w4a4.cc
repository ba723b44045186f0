#include "kernels/cuda/w4a4.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "curvq/formats/dtype.h"
#include "curvq/formats/minifloat.h"
#include "kernels/cuda/product_sizes.h"

namespace curvq {
namespace internal {

cuda::BlockScale block_scale(const Scheme& scheme) {
  if (scheme.bits == 4 && scheme.element == ElementType::kE2M1) {
    if (scheme.scale_type == ScaleType::kE4M3 && scheme.group_size == 16)
      return cuda::BlockScale::kE4M3;
    if (scheme.scale_type == ScaleType::kE8M0 && scheme.group_size == 32)
      return cuda::BlockScale::kE8M0;
  }
  throw UnsupportedError("w4a4: no kernel for " + scheme.describe() + "; there are nvfp4, mxfp4");
}

W4A4Launch plan_w4a4(const W4A4Matrix& weight, int64_t m, int64_t ldx, int64_t ldout) {
  constexpr int64_t kMost = 1 << 20;  // rows of x that blocks of a grid can be for
  check_product_sizes("w4a4", m, kMost, ldx, ldout, weight.rows, weight.cols);
  if (!(weight.input_divisor > 0) || !std::isfinite(weight.input_divisor))
    throw UsageError("w4a4: the scale of the inputs is " + std::to_string(weight.input_divisor) +
                     "; calibrate the activations when quantizing (a scheme with inputs of nvfp4)");

  W4A4Launch launch{};
  launch.scale = block_scale(weight.scheme);
  const auto tiles = [](int64_t rows) {
    return static_cast<int>((rows + cuda::kW4A4Rows - 1) / cuda::kW4A4Rows);
  };
  const int chunks = static_cast<int>(weight.chunks);
  launch.quantize.m = static_cast<int>(m);
  launch.quantize.k = static_cast<int>(weight.cols);
  launch.quantize.ldx = static_cast<int>(ldx);
  launch.quantize.chunks = chunks;
  launch.quantize.divisor = weight.input_divisor;
  launch.product.x.rows = static_cast<int>(m);
  launch.product.w.rows = static_cast<int>(weight.rows);
  launch.product.alpha = static_cast<float>(1.0 / (double{weight.divisor} * weight.input_divisor));
  launch.product.chunks = chunks;
  launch.product.ldout = static_cast<int>(ldout);
  launch.product.row_tiles = tiles(weight.rows);
  launch.product.token_tiles = tiles(m);
  launch.product.wide_stores = ldout % 8 == 0;
  launch.x_code_bytes = m * chunks * cuda::kW4A4CodeBytes;
  launch.x_scale_bytes = int64_t{launch.product.token_tiles} * chunks *
                         cuda::scale_words(launch.scale) * cuda::kScaleTileBytes;
  return launch;
}

}  // namespace internal

namespace {

int64_t groups_of(const W4A4Matrix& packed) { return packed.scheme.num_groups(packed.cols); }

}  // namespace

int64_t w4a4_scale_offset(const W4A4Matrix& packed, int64_t row, int64_t group) {
  return cuda::scale_offset(
      row, group, packed.chunks * cuda::scale_words(internal::block_scale(packed.scheme)));
}

W4A4Matrix pack_w4a4(const QuantizedMatrix& matrix) {
  const cuda::BlockScale scale = internal::block_scale(matrix.scheme());
  W4A4Matrix packed;
  packed.scheme = matrix.scheme();
  packed.rows = matrix.rows();
  packed.cols = matrix.cols();
  packed.chunks = (packed.cols + cuda::kW4A4Cols - 1) / cuda::kW4A4Cols;
  packed.divisor = matrix.grid.global_divisor;
  packed.input_divisor = scale == cuda::BlockScale::kE8M0 ? 1 : matrix.input_scale;
  const int64_t row_bytes = packed.chunks * cuda::kW4A4CodeBytes;
  packed.codes.resize(packed.rows * row_bytes);
  packed.scales.resize((packed.rows + 127) / 128 * packed.chunks * cuda::scale_words(scale) *
                       cuda::kScaleTileBytes);
  const int64_t groups = groups_of(packed);
  for (int64_t row = 0; row < packed.rows; ++row) {
    std::copy_n(matrix.codes.data() + row * matrix.row_bytes, packed.cols / 2,
                packed.codes.data() + row * row_bytes);
    for (int64_t group = 0; group < groups; ++group)
      packed.scales[w4a4_scale_offset(packed, row, group)] =
          matrix.grid.scale_codes[row * groups + group];
  }
  return packed;
}

QuantizedMatrix unpack_w4a4(const W4A4Matrix& packed) {
  const cuda::BlockScale scale = internal::block_scale(packed.scheme);
  ScaleGrid grid;
  grid.scheme = packed.scheme;
  grid.rows = packed.rows;
  grid.cols = packed.cols;
  grid.groups = groups_of(packed);
  grid.global_divisor = packed.divisor;
  grid.scale_codes.resize(grid.rows * grid.groups);
  grid.scales.resize(grid.rows * grid.groups);
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t group = 0; group < grid.groups; ++group) {
      const uint8_t code = packed.scales[w4a4_scale_offset(packed, row, group)];
      const int64_t at = row * grid.groups + group;
      grid.scale_codes[at] = code;
      grid.scales[at] = scale == cuda::BlockScale::kE4M3 ? e4m3_to_f32(code) / grid.global_divisor
                                                         : e8m0_to_f32(code);
    }
  }
  QuantizedMatrix matrix(std::move(grid));
  matrix.input_scale = scale == cuda::BlockScale::kE4M3 ? packed.input_divisor : 0;
  for (int64_t row = 0; row < packed.rows; ++row)
    std::copy_n(packed.codes.data() + row * packed.chunks * cuda::kW4A4CodeBytes, packed.cols / 2,
                matrix.codes.data() + row * matrix.row_bytes);
  return matrix;
}

void w4a4_reference(const W4A4Matrix& weight, const W4A4Matrix& x, Float16Type type,
                    const float* bias, double* out, double* bound) {
  if (!(weight.scheme == x.scheme) || weight.cols != x.cols)
    throw UsageError("w4a4: x and the weight differ in columns or scheme");
  const int64_t n = weight.rows, k = weight.cols;
  std::vector<float> w(n * k), inputs(x.rows * k);
  dequantize(unpack_w4a4(weight), w.data());
  dequantize(unpack_w4a4(x), inputs.data());
  const bool f16 = type == Float16Type::kFloat16;
  const double rounding = f16 ? 0x1p-11 : 0x1p-8;  // half a unit in the last place
  const double least = f16 ? 0x1p-25 : 0x1p-134;   // half the smallest subnormal
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double product = static_cast<double>(inputs[row * k + c]) * w[j * k + c];
        sum += product;
        magnitude += std::abs(product);
      }
      const double b = bias == nullptr ? 0 : static_cast<double>(bias[j]);
      const double y = sum + b;
      const double e = static_cast<double>(k + 32) * 0x1p-23 * magnitude + std::abs(b) * 0x1p-22;
      out[row * n + j] = y;
      if (bound != nullptr) bound[row * n + j] = e + (std::abs(y) + e) * rounding + least;
    }
  }
}

}  // namespace curvq
