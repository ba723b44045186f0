#include <cmath>

#include "curvq/formats/dtype.h"
#include "curvq/kernels/w4a16.h"

namespace curvq {
namespace {

struct Sum {
  double value, bound;
};

double silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace

void w4a16_reference(const W4A16Weight& weight, const uint16_t* x, int64_t m, int64_t ldx,
                     const float* const (&bias)[2], double* out, double* bound) {
  const int64_t n = weight.rows, k = weight.cols;
  const int count = weight.pair ? 2 : 1;
  std::vector<float> dense[2];
  for (int i = 0; i < count; ++i) {
    dense[i].resize(n * k);
    dequantize(unpack_w4a16(weight, i), dense[i].data());
  }
  const bool f16 = weight.type == Float16Type::kFloat16;
  std::vector<double> wide(k);
  const double rounding = f16 ? 0x1p-11 : 0x1p-8;  // half a unit in the last place
  const double least = f16 ? 0x1p-25 : 0x1p-134;   // half the smallest subnormal
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t c = 0; c < k; ++c)
      wide[c] = f16 ? f16_to_f32(x[row * ldx + c]) : bf16_to_f32(x[row * ldx + c]);
    for (int64_t j = 0; j < n; ++j) {
      Sum sums[2] = {};
      for (int i = 0; i < count; ++i) {
        double value = 0, magnitude = 0;
        const float* w = dense[i].data() + j * k;
        for (int64_t c = 0; c < k; ++c) {
          value += wide[c] * w[c];
          magnitude += std::abs(wide[c] * w[c]);
        }
        const double b = bias[i] == nullptr ? 0 : static_cast<double>(bias[i][j]);
        sums[i].value = value + b;
        sums[i].bound = static_cast<double>(k + 32) * 0x1p-23 * magnitude + std::abs(b) * 0x1p-22;
      }
      double y = sums[0].value, e = sums[0].bound;
      if (weight.pair) {
        // |silu'| < 1.1, and float32 arithmetic of silu (an exponential, a sum, a quotient, a
        // product) adds a few units in the last place.
        const double s = silu(sums[0].value);
        y = s * sums[1].value;
        e = 1.1 * sums[0].bound * (std::abs(sums[1].value) + sums[1].bound) +
            std::abs(s) * sums[1].bound + 8 * 0x1p-23 * std::abs(y);
      }
      out[row * n + j] = y;
      if (bound != nullptr) bound[row * n + j] = e + (std::abs(y) + e) * rounding + least;
    }
  }
}

}  // namespace curvq
