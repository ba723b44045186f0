#include "products.h"

#include <algorithm>
#include <cmath>

#include "curvq/formats/dtype.h"
#include "curvq/formats/minifloat.h"

namespace curvq {
namespace {

constexpr uint16_t kNaN = 0x7fff;  // in float16 and bfloat16

uint16_t to_type(double value, Float16Type type) {
  const auto narrow = static_cast<float>(value);
  return type == Float16Type::kFloat16 ? f32_to_f16(narrow) : f32_to_bf16(narrow);
}
float from_type(uint16_t bits, Float16Type type) {
  return type == Float16Type::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

int between(int least, int most, std::mt19937& random) {
  return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

}  // namespace

QuantizedMatrix random_codes(const Scheme& scheme, int64_t n, int64_t k, bool exact,
                             std::mt19937& random) {
  const std::vector<float> ones(n * k, 1.0f);
  ScaleGrid grid = make_scale_grid(ones.data(), n, k, scheme, 1.0f);
  if (scheme.scale_type == ScaleType::kE4M3) grid.global_divisor = exact ? 1.0f : 448.0f;
  for (size_t i = 0; i < grid.scales.size(); ++i) {
    switch (scheme.scale_type) {
      case ScaleType::kE4M3:  // every positive one, subnormals too
        grid.scale_codes[i] = static_cast<uint8_t>(exact ? 0x38 : between(1, 0x7e, random));
        grid.scales[i] = e4m3_to_f32(grid.scale_codes[i]) / grid.global_divisor;
        break;
      case ScaleType::kE8M0:  // 2^-37 ... 2^-2
        grid.scale_codes[i] = static_cast<uint8_t>(exact ? 127 : between(90, 125, random));
        grid.scales[i] = e8m0_to_f32(grid.scale_codes[i]);
        break;
      case ScaleType::kFloat:
        grid.scales[i] =
            exact ? 1.0f : 0.01f + static_cast<float>(between(0, 10006, random)) * 1e-5f;
        break;
    }
  }
  for (int8_t& zero : grid.zero_points) zero = static_cast<int8_t>(between(-8, 7, random));
  QuantizedMatrix matrix(std::move(grid));
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c)
      matrix.set_code(r, c, static_cast<uint8_t>(between(0, 15, random)));
  return matrix;
}

Operands make_operands(const Scheme& scheme, Float16Type type, const Product& product) {
  std::mt19937 random(static_cast<unsigned>(product.seed));
  const int64_t m = product.m, n = product.n, k = product.k;
  const QuantizedMatrix first = random_codes(scheme, n, k, product.exact, random);
  Operands operands;
  operands.weight =
      product.pair ? pack_w4a16_pair(first, random_codes(scheme, n, k, product.exact, random), type)
                   : pack_w4a16(first, type);
  operands.ldx = (k + 7) / 8 * 8;
  operands.ldout = product.ldout == 0 ? n : product.ldout;
  operands.x.assign(m * operands.ldx, kNaN);
  operands.out.assign(m * operands.ldout, kNaN);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t c = 0; c < k; ++c)
      operands.x[i * operands.ldx + c] = to_type(
          product.exact ? between(-2, 2, random) : between(-1000, 1000, random) / 500.0, type);
  if (product.bias)
    for (int i = 0; i < (product.pair ? 2 : 1); ++i)
      for (int64_t j = 0; j < n; ++j)
        operands.bias[i].push_back(static_cast<float>(between(-3, 3, random)));
  return operands;
}

Comparison compare(const Operands& operands, int64_t m) {
  const W4A16Weight& weight = operands.weight;
  const int64_t n = weight.rows;
  std::vector<double> want(m * n), bound(m * n);
  w4a16_reference(weight, operands.x.data(), m, operands.ldx,
                  {operands.bias_of(0), operands.bias_of(1)}, want.data(), bound.data());
  Comparison comparison;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < operands.ldout; ++j) {
      const uint16_t bits = operands.out[i * operands.ldout + j];
      if (j >= n) {
        comparison.overrun += bits != kNaN;
        continue;
      }
      const double got = from_type(bits, weight.type), right = want[i * n + j];
      const double error = std::abs(got - right) / bound[i * n + j];
      comparison.worst = std::max(comparison.worst, std::isnan(error) ? INFINITY : error);
      comparison.differing += got != from_type(to_type(right, weight.type), weight.type);
    }
  }
  return comparison;
}

const std::vector<WeightKind>& weight_kinds() {
  static const std::vector<WeightKind> all = {{"nvfp4", Scheme::nvfp4()},
                                              {"mxfp4", Scheme::mxfp4()},
                                              {"int4 g32", Scheme::int4(32)},
                                              {"int4 g32 zero points", Scheme::int4(32, false)},
                                              {"int4 g64", Scheme::int4(64)},
                                              {"int4 g128", Scheme::int4(128)},
                                              {"int4 g128 zero points", Scheme::int4(128, false)},
                                              {"int4 row", Scheme::int4(0)},
                                              {"int4 row zero points", Scheme::int4(0, false)}};
  return all;
}

int64_t allowed_columns(const Scheme& scheme, int64_t k) {
  if (scheme.group_size == 0) return std::max<int64_t>(1, k - 3);  // any number will do
  return (k + scheme.group_size - 1) / scheme.group_size * scheme.group_size;
}

std::string type_name(Float16Type type) {
  return type == Float16Type::kFloat16 ? "float16" : "bfloat16";
}

}  // namespace curvq
