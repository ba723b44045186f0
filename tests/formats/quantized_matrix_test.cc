#include "curvq/formats/quantized_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "curvq/core/error.h"

namespace curvq {
namespace {

constexpr double kHalfUlp = 0x1p-24;

std::vector<float> random_weight(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> weight(count);
  for (float& w : weight) w = 0.05f * normal(generator);
  return weight;
}

QuantizedMatrix quantized(const std::vector<float>& weight, int64_t rows, const Scheme& scheme) {
  const int64_t count = static_cast<int64_t>(weight.size());
  return quantize_rtn(weight.data(), rows, count / rows, scheme, max_abs(weight.data(), count));
}

std::vector<float> dequantized(const QuantizedMatrix& matrix) {
  std::vector<float> out(matrix.rows() * matrix.cols());
  dequantize(matrix, out.data());
  return out;
}

std::vector<Scheme> schemes_of_any_width() {
  return {Scheme::int4(0), Scheme::int4(0, false), Scheme::int8(0), Scheme::int8(0, false),
          Scheme::fp8()};
}

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> schemes = schemes_of_any_width();
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(16), Scheme::int4(32),
                               Scheme::int4(64, false), Scheme::fp8(32)}) {
    schemes.push_back(scheme);
  }
  return schemes;
}

// No other code of the grid is nearer to the weight than the one that was chosen. The quotient, the
// added zero point and the product each err by half a unit in the last place.
TEST(QuantizeRtnTest, NoCodeIsNearer) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    const int64_t rows = 5, cols = 128;
    const std::vector<float> weight = random_weight(rows * cols, 1);
    const QuantizedMatrix matrix = quantized(weight, rows, scheme);
    const std::vector<float> values = dequantized(matrix);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t g = scheme.group_of(c);
        const double w = weight[r * cols + c], scale = matrix.grid.scale(r, g);
        double best = HUGE_VAL;
        for (int code = 0; code < 1 << scheme.bits; ++code) {
          const double value = decode(scheme, static_cast<uint8_t>(code), matrix.grid.scale(r, g),
                                      matrix.grid.zero_point(r, g));
          if (!std::isnan(value)) best = std::min(best, std::fabs(w - value));
        }
        const double slack =
            4 * kHalfUlp * (std::fabs(w) + std::abs(matrix.grid.zero_point(r, g)) * scale);
        EXPECT_LE(std::fabs(w - values[r * cols + c]), best + slack);
      }
    }
  }
}

// Integer grids cover the group: at most half a step is lost.
TEST(QuantizeRtnTest, IntegerErrorIsHalfAStep) {
  for (const bool symmetric : {true, false}) {
    for (const int64_t cols : {64, 172}) {
      for (const Scheme& scheme : {Scheme::int4(0, symmetric), Scheme::int8(0, symmetric)}) {
        SCOPED_TRACE(scheme.describe());
        const std::vector<float> weight = random_weight(6 * cols, 2);
        const QuantizedMatrix matrix = quantized(weight, 6, scheme);
        const std::vector<float> values = dequantized(matrix);
        for (int64_t i = 0; i < 6 * cols; ++i) {
          const double scale = matrix.grid.scale(i / cols, 0);
          // Up to 256 steps, each product and quotient rounded.
          EXPECT_LE(std::fabs(static_cast<double>(values[i]) - weight[i]),
                    scale * (0.5 + 4 * 256 * kHalfUlp));
        }
      }
    }
  }
}

TEST(QuantizeRtnTest, CodesEqualEncode) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    const std::vector<float> weight = random_weight(7 * 192, 3);
    const QuantizedMatrix matrix = quantized(weight, 7, scheme);
    const std::vector<float> values = dequantized(matrix);
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t c = 0; c < 192; ++c) {
        const int64_t g = scheme.group_of(c);
        const float scale = matrix.grid.scale(r, g);
        const int zero_point = matrix.grid.zero_point(r, g);
        const uint8_t code = encode(scheme, weight[r * 192 + c], scale, zero_point);
        EXPECT_EQ(matrix.code(r, c), code);
        EXPECT_EQ(values[r * 192 + c], decode(scheme, code, scale, zero_point));
      }
    }
  }
}

TEST(QuantizeRtnTest, QuantizingAgainOnTheSameGridChangesNothing) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    const QuantizedMatrix matrix = quantized(random_weight(4 * 128, 4), 4, scheme);
    const std::vector<float> values = dequantized(matrix);
    EXPECT_EQ(quantize_rtn(values.data(), matrix.grid).codes, matrix.codes);
  }
}

TEST(QuantizeRtnTest, ZerosDecodeToZeros) {
  for (Scheme scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    for (const ScaleRule rule : {ScaleRule::kCurvq, ScaleRule::kCompressedTensors}) {
      scheme.rule = rule;
      const std::vector<float> weight(3 * 128, 0.0f);
      const QuantizedMatrix matrix = quantized(weight, 3, scheme);
      for (const float scale : matrix.grid.scales) {
        EXPECT_GT(scale, 0.0f);
        EXPECT_TRUE(std::isfinite(scale));
      }
      EXPECT_EQ(dequantized(matrix), weight);
    }
  }
}

TEST(QuantizeRtnTest, ConstantRowsKeepTheirValue) {
  // The largest magnitude is an element times the scale (E2M1 6, E4M3 448, asymmetric 15 steps):
  // what is lost is the rounding of the scale itself.
  for (const float value : {1.0f, -3.0f, 1e-20f, 1e20f}) {
    const std::vector<float> weight(64, value);
    for (const Scheme& scheme : {Scheme::int4(0, false), Scheme::int8(0, false), Scheme::fp8()}) {
      SCOPED_TRACE(scheme.describe());
      for (const float v : dequantized(quantized(weight, 1, scheme))) {
        EXPECT_NEAR(v, value, 3 * kHalfUlp * std::fabs(value));
      }
    }
  }
}

TEST(QuantizeRtnTest, DenormalAndHugeWeightsStayFinite) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    for (const float amax : {std::numeric_limits<float>::max(), 1e38f, 1e-38f, 1e-44f}) {
      std::vector<float> weight = random_weight(128, 5);
      for (float& w : weight) w = std::clamp(w * 10, -1.0f, 1.0f) * amax;
      for (const float v : dequantized(quantized(weight, 1, scheme))) {
        EXPECT_TRUE(std::isfinite(v));
      }
    }
  }
}

TEST(QuantizedMatrixTest, LayoutOfNibbles) {
  ScaleGrid grid;
  grid.scheme = Scheme::int4(0);
  grid.rows = 2;
  grid.cols = 5;
  grid.groups = 1;
  grid.scales = {1.0f, 1.0f};
  QuantizedMatrix matrix(grid);
  EXPECT_EQ(matrix.row_bytes, 4);  // 20 bits, rounded up to 32
  for (int64_t c = 0; c < 5; ++c) matrix.set_code(1, c, static_cast<uint8_t>(c + 1));
  EXPECT_EQ(matrix.codes, (std::vector<uint8_t>{0, 0, 0, 0, 0x21, 0x43, 0x05, 0}));
  matrix.set_code(1, 1, 0xf);
  EXPECT_EQ(matrix.codes[4], 0xf1);
  EXPECT_EQ(matrix.code(1, 1), 0xf);
  EXPECT_EQ(matrix.code(1, 4), 5);
}

TEST(QuantizedMatrixTest, SpareBitsAreZero) {
  for (const Scheme& scheme : schemes_of_any_width()) {
    for (const int64_t cols : {1, 3, 5, 171, 172, 173}) {
      const QuantizedMatrix matrix = quantized(random_weight(2 * cols, 6), 2, scheme);
      EXPECT_EQ(matrix.row_bytes % 4, 0);
      EXPECT_EQ(static_cast<int64_t>(matrix.codes.size()), 2 * matrix.row_bytes);
      QuantizedMatrix copy(matrix.grid);
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t c = 0; c < cols; ++c) copy.set_code(r, c, matrix.code(r, c));
      }
      EXPECT_EQ(copy.codes, matrix.codes);
    }
  }
}

TEST(DequantizeRowTest, AnyRangeEqualsThePartOfTheWhole) {
  for (const Scheme& scheme : all_schemes()) {
    SCOPED_TRACE(scheme.describe());
    const int64_t cols = 128;
    const QuantizedMatrix matrix = quantized(random_weight(3 * cols, 7), 3, scheme);
    const std::vector<float> whole = dequantized(matrix);
    for (int64_t begin = 0; begin <= cols; begin += 7) {
      for (int64_t end = begin; end <= cols; end += 5) {
        std::vector<float> part(end - begin);
        dequantize_row(matrix, 1, begin, end, part.data());
        EXPECT_EQ(part,
                  std::vector<float>(whole.begin() + cols + begin, whole.begin() + cols + end));
      }
    }
  }
}

TEST(DequantizeRowTest, RangesOutsideTheMatrixAreErrors) {
  const QuantizedMatrix matrix = quantized(random_weight(2 * 32, 8), 2, Scheme::int4(0));
  std::vector<float> out(64);
  EXPECT_THROW(dequantize_row(matrix, 2, 0, 32, out.data()), UsageError);
  EXPECT_THROW(dequantize_row(matrix, -1, 0, 32, out.data()), UsageError);
  EXPECT_THROW(dequantize_row(matrix, 0, -1, 32, out.data()), UsageError);
  EXPECT_THROW(dequantize_row(matrix, 0, 0, 33, out.data()), UsageError);
  EXPECT_THROW(dequantize_row(matrix, 0, 9, 8, out.data()), UsageError);
}

TEST(QuantizedMatrixTest, EmptyMatrices) {
  for (const Scheme& scheme : all_schemes()) {
    const QuantizedMatrix no_rows = quantize_rtn(nullptr, 0, 64, scheme, 0);
    EXPECT_EQ(no_rows.codes.size(), 0u);
    dequantize(no_rows, nullptr);
    const QuantizedMatrix no_cols = quantize_rtn(nullptr, 3, 0, scheme, 0);
    EXPECT_EQ(no_cols.codes.size(), 0u);
    dequantize(no_cols, nullptr);
  }
}

}  // namespace
}  // namespace curvq
