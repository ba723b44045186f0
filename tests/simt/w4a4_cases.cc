#include "w4a4_cases.h"

#include <cmath>
#include <random>

#include "curvq/formats/dtype.h"
#include "curvq/formats/input_rounding.h"
#include "products.h"

namespace curvq {
namespace {

constexpr uint16_t kNaN = 0x7fff;  // in float16 and bfloat16
constexpr float kInputDivisor = 37.5f;

float widen(uint16_t bits, Float16Type type) {
  return type == Float16Type::kFloat16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}
uint16_t narrow(float value, Float16Type type) {
  return type == Float16Type::kFloat16 ? f32_to_f16(value) : f32_to_bf16(value);
}

}  // namespace

std::string W4A4Kind::name() const { return scheme.describe() + " " + type_name(type); }

const std::vector<W4A4Kind>& w4a4_kinds() {
  static const std::vector<W4A4Kind> all = {{Scheme::nvfp4(), Float16Type::kBFloat16},
                                            {Scheme::nvfp4(), Float16Type::kFloat16},
                                            {Scheme::mxfp4(), Float16Type::kBFloat16},
                                            {Scheme::mxfp4(), Float16Type::kFloat16}};
  return all;
}

std::string W4A4Case::name() const {
  return W4A4Kind{weight.scheme, type}.name() + " " + std::to_string(m) + "x" +
         std::to_string(weight.rows) + "x" + std::to_string(weight.cols) + (exact ? " exact" : "");
}

W4A4Case make_w4a4_case(const W4A4Kind& kind, int64_t m, int64_t n, int64_t k, bool exact,
                        int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  W4A4Case c;
  QuantizedMatrix weight = random_codes(kind.scheme, n, k, exact, random);
  weight.input_scale = exact ? 1.0f : kInputDivisor;
  c.weight = pack_w4a4(weight);
  c.type = kind.type;
  c.exact = exact;
  c.m = m;
  c.ldx = k + 8;
  c.ldout = n + seed % 5;
  c.x.assign(m * c.ldx, kNaN);
  c.out.assign(m * c.ldout, kNaN);
  std::normal_distribution<float> normal;
  const int64_t group = kind.scheme.group_size;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t g = 0; g < k / group; ++g) {
      const float size = std::exp2(static_cast<float>(random() % 12) - 6.0f);
      for (int64_t at = 0; at < group; ++at) {
        // A 6 makes the scale 1.
        const float integer = at == 3 ? 6.0f : static_cast<float>(random() % 5) - 2.0f;
        c.x[i * c.ldx + g * group + at] = narrow(exact ? integer : normal(random) * size, c.type);
      }
    }
  }
  if (!exact && seed % 2 == 0)
    for (int64_t j = 0; j < n; ++j) c.bias.push_back(normal(random));
  return c;
}

std::vector<float> rounded_inputs(const W4A4Case& c) {
  const InputFormat format =
      c.weight.scheme.group_size == 16 ? InputFormat::kNvfp4 : InputFormat::kMxfp4;
  const int64_t k = c.weight.cols;
  std::vector<float> values(c.m * k), rounded(c.m * k);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < k; ++j) values[i * k + j] = widen(c.x[i * c.ldx + j], c.type);
  round_inputs(format, c.weight.input_divisor, values.data(), c.m, k, rounded.data());
  return rounded;
}

std::string quantizer_problem(const W4A4Case& c, const W4A4Matrix& x) {
  const int64_t k = c.weight.cols;
  std::vector<float> got(c.m * k);
  dequantize(unpack_w4a4(x), got.data());
  const std::vector<float> want = rounded_inputs(c);
  for (int64_t i = 0; i < c.m * k; ++i) {
    if (got[i] != want[i])
      return "x[" + std::to_string(i / k) + ", " + std::to_string(i % k) + "] became " +
             std::to_string(got[i]) + ", not " + std::to_string(want[i]);
  }
  return "";
}

std::string product_problem(const W4A4Case& c, const W4A4Matrix& x) {
  const int64_t n = c.weight.rows;
  std::vector<double> want(c.m * n), bound(c.m * n);
  w4a4_reference(c.weight, x, c.type, c.bias.empty() ? nullptr : c.bias.data(), want.data(),
                 bound.data());
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.ldout; ++j) {
      const uint16_t bits = c.out[i * c.ldout + j];
      const std::string where = "out[" + std::to_string(i) + ", " + std::to_string(j) + "] ";
      if (j >= n) {
        if (bits != kNaN) return where + "behind its row was written";
        continue;
      }
      const double right = want[i * n + j], got = static_cast<double>(widen(bits, c.type));
      if (!(std::abs(got - right) <= bound[i * n + j]) ||
          (c.exact && bits != narrow(static_cast<float>(right), c.type)))
        return where + "is " + std::to_string(got) + ", not " + std::to_string(right);
    }
  }
  return "";
}

}  // namespace curvq
