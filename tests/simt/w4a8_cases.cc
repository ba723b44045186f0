#include "w4a8_cases.h"

#include <cmath>
#include <random>

#include "curvq/formats/dtype.h"
#include "curvq/formats/input_rounding.h"
#include "curvq/formats/minifloat.h"
#include "products.h"

namespace curvq {
namespace {

constexpr uint16_t kNaN = 0x7fff;  // in float16 and bfloat16

float widen(uint16_t bits, Float16Type type) {
  return type == Float16Type::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}
uint16_t narrow(float value, Float16Type type) {
  return type == Float16Type::kFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
}

std::string place(const char* matrix, int64_t row, int64_t column) {
  return std::string(matrix) + "[" + std::to_string(row) + ", " + std::to_string(column) + "] ";
}

}  // namespace

std::string W4A8Case::name() const {
  return "w4a8 " + type_name(type) + " " + std::to_string(m) + "x" + std::to_string(weight.rows) +
         "x" + std::to_string(weight.cols) + (exact ? " exact" : "");
}

W4A8Case make_w4a8_case(Float16Type type, int64_t m, int64_t n, int64_t k, bool exact, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  W4A8Case c;
  c.weight = pack_w4a8(random_codes(Scheme::mxfp4(), n, k, exact, random));
  c.type = type;
  c.exact = exact;
  c.m = m;
  c.ldx = k + 8;
  c.ldout = n + seed % 5;
  c.x.assign(m * c.ldx, kNaN);
  c.out.assign(m * c.ldout, kNaN);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < m; ++i) {
    const float size = std::exp2(static_cast<float>(random() % 12) - 6.0f);
    for (int64_t j = 0; j < k; ++j) {
      const float integer = j == i % k ? 448.0f : static_cast<float>(random() % 9) - 4.0f;
      c.x[i * c.ldx + j] = narrow(exact ? integer : normal(random) * size, type);
    }
  }
  if (!exact && seed % 2 == 0)
    for (int64_t j = 0; j < n; ++j) c.bias.push_back(normal(random));
  return c;
}

std::string quantizer_problem(const W4A8Case& c, const W4A8Inputs& x) {
  const int64_t k = c.weight.cols, padded = x.chunks * 128;
  std::vector<float> values(c.m * k), want(c.m * k);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < k; ++j) values[i * k + j] = widen(c.x[i * c.ldx + j], c.type);
  round_inputs(InputFormat::kFp8, 0, values.data(), c.m, k, want.data());
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < padded; ++j) {
      const float got = e4m3_to_f32(x.codes[i * padded + j]) * x.scales[i];
      const float right = j < k ? want[i * k + j] : 0;
      if (got != right)
        return place("x", i, j) + "became " + std::to_string(got) + ", not " +
               std::to_string(right);
    }
  }
  return "";
}

std::string product_problem(const W4A8Case& c, const W4A8Inputs& x) {
  const int64_t n = c.weight.rows;
  std::vector<double> want(c.m * n), bound(c.m * n);
  w4a8_reference(c.weight, x, c.type, c.bias.empty() ? nullptr : c.bias.data(), want.data(),
                 bound.data());
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.ldout; ++j) {
      const uint16_t bits = c.out[i * c.ldout + j];
      if (j >= n) {
        if (bits != kNaN) return place("out", i, j) + "behind its row was written";
        continue;
      }
      const double right = want[i * n + j], got = static_cast<double>(widen(bits, c.type));
      if (!(std::abs(got - right) <= bound[i * n + j]) ||
          (c.exact && bits != narrow(static_cast<float>(right), c.type)))
        return place("out", i, j) + "is " + std::to_string(got) + ", not " + std::to_string(right);
    }
  }
  return "";
}

}  // namespace curvq
