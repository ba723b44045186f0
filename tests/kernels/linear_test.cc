#include "curvq/kernels/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "curvq/core/parallel.h"
#include "linear_testing.h"

namespace curvq {
namespace {

class LinearPathTest : public CpuPathTest {};

// (k + 2) 2^-24 sum |x w|, and half the smallest float32 for each operation that can underflow.
void expect_exact(const QuantizedMatrix& weight, int64_t m, unsigned seed) {
  const int64_t n = weight.rows(), k = weight.cols(), ldx = k + 3, ldout = n + 2;
  Guarded<float> x(random_values(m * ldx - 3, seed));
  Guarded<float> out(m * ldout - 2);
  const float untouched = 12345.0f;
  std::fill_n(out.data(), m * ldout - 2, untouched);
  const PrepackedWeight prepacked(weight);
  linear(prepacked, LinearInput(prepacked, x.data(), m, ldx), out.data(), ldout);
  const ExactProduct exact(weight, x.data(), m, ldx);
  const double factor = (static_cast<double>(k) + 2) * kHalfUlp;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      ASSERT_LE(std::fabs(static_cast<double>(out[i * ldout + j]) - exact.value[i * n + j]),
                factor * exact.magnitude[i * n + j] + static_cast<double>(k) * 0x1p-149)
          << "row " << i << ", column " << j;
    }
    if (i + 1 < m) {
      ASSERT_EQ(out[i * ldout + n], untouched);
    }
  }
}

TEST_P(LinearPathTest, ExactForAllSchemesAndShapes) {
  for (const int64_t k : {32, 96, 160, 256, 576, 1536}) {
    for (const Scheme& scheme : all_schemes_of(k)) {
      SCOPED_TRACE(scheme.describe() + ", k = " + std::to_string(k));
      expect_exact(random_matrix(scheme, 21, k, 1), 7, 2);
      expect_exact(random_matrix(scheme, 85, k, 3), 1, 4);
    }
  }
}

TEST_P(LinearPathTest, ExactForOddWidths) {
  for (const int64_t k : {1, 2, 7, 15, 17, 31, 33, 172, 300}) {
    for (const Scheme& scheme : {Scheme::int4(0), Scheme::int4(0, false), Scheme::int8(0),
                                 Scheme::int8(0, false), Scheme::fp8(0)}) {
      SCOPED_TRACE(scheme.describe() + ", k = " + std::to_string(k));
      expect_exact(random_matrix(scheme, 9, k, 5), 1, 6);
      expect_exact(random_matrix(scheme, 18, k, 7), 13, 8);
    }
  }
}

TEST_P(LinearPathTest, ExactForAllNumbersOfRows) {
  for (int64_t m = 1; m <= 33; ++m) {
    for (const int64_t n : {1, 16, 37, 172}) {
      SCOPED_TRACE("m = " + std::to_string(m) + ", n = " + std::to_string(n));
      expect_exact(random_matrix(Scheme::nvfp4(), n, 80, 9), m, 10);
    }
  }
  expect_exact(random_matrix(Scheme::mxfp4(), 100, 96, 11), 250, 12);  // more than a block
}

// Rounded inputs times dequantized weights, up to float32 sums over blocks of at least 16 columns,
// whose products round three times; and the rounding of x to half a step, but for the rounding of
// the quotient (three halves of an ulp of up to 2^14).
void expect_rounded(const QuantizedMatrix& weight, int64_t m, unsigned seed,
                    InputRounding rounding) {
  const int64_t n = weight.rows(), k = weight.cols();
  Guarded<float> x(random_values(m * k, seed));
  const bool two = rounding == InputRounding::kA15;
  const RoundedInput rounded(weight.scheme(), x.data(), m, k, two ? 127 * 128 + 63 : 127);
  const std::vector<float> out = run_linear(weight, x.data(), m, rounding);
  const ExactProduct exact(weight, rounded.value.data(), m, k), wanted(weight, x.data(), m, k);
  std::vector<float> w(n * k);
  dequantize(weight, w.data());
  const double factor = (static_cast<double>(k) / 16 + 20) * kHalfUlp;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      // Of integers of 15 bits the high and the low parts are summed by themselves; the magnitude
      // of both is at most that of values a half larger.
      double magnitude = 0, step = 0;
      for (int64_t c = 0; c < k; ++c) {
        magnitude += std::fabs(static_cast<double>(w[j * k + c])) *
                     (std::fabs(static_cast<double>(rounded.value[i * k + c])) +
                      (two ? 128 : 0) * rounded.step[i * k + c]);
        step += std::fabs(static_cast<double>(w[j * k + c])) * rounded.step[i * k + c];
      }
      const double got = out[i * n + j];
      ASSERT_LE(std::fabs(got - exact.value[i * n + j]), factor * magnitude)
          << "row " << i << ", column " << j;
      ASSERT_LE(std::fabs(got - wanted.value[i * n + j]),
                step * (0.5 + 0x1p14 * 1.5 * kHalfUlp) + factor * magnitude);
    }
  }
}

TEST_P(LinearPathTest, IntegerInputsForAllSchemesAndShapes) {
  for (const InputRounding rounding : {InputRounding::kA8, InputRounding::kA15}) {
    for (const int64_t k : {32, 96, 160, 576, 1536}) {
      for (const Scheme& scheme : four_bit_schemes(k)) {
        SCOPED_TRACE(scheme.describe() + ", k = " + std::to_string(k));
        expect_rounded(random_matrix(scheme, 21, k, 13), 7, 14, rounding);
        expect_rounded(random_matrix(scheme, 53, k, 15), 1, 16, rounding);
      }
    }
    for (const int64_t k : {1, 7, 16, 17, 33, 172, 300}) {
      for (const bool symmetric : {true, false}) {
        SCOPED_TRACE("row scales, k = " + std::to_string(k));
        expect_rounded(random_matrix(Scheme::int4(0, symmetric), 19, k, 17), 3, 18, rounding);
      }
    }
    for (int64_t m = 1; m <= 33; ++m) {
      SCOPED_TRACE("m = " + std::to_string(m));
      expect_rounded(random_matrix(Scheme::nvfp4(), 37, 80, 19), m, 20, rounding);
    }
    expect_rounded(random_matrix(Scheme::mxfp4(), 70, 96, 21), 250, 22, rounding);
  }
}

// The largest products that 16-bit sums must hold: all codes and inputs at the ends of their
// ranges.
TEST_P(LinearPathTest, IntegerInputsDoNotOverflow) {
  for (const Scheme& scheme :
       {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(64), Scheme::int4(128, false)}) {
    for (const float sign : {1.0f, -1.0f}) {
      QuantizedMatrix weight = random_matrix(scheme, 16, 128, 23);
      std::fill(weight.grid.zero_points.begin(), weight.grid.zero_points.end(), int8_t{-8});
      for (int64_t c = 0; c < 128; ++c) {
        for (int64_t r = 0; r < 16; ++r)
          weight.set_code(
              r, c, scheme.element == ElementType::kE2M1 ? (r % 2 ? 7 : 15) : (r % 2 ? 15 : 0));
      }
      const std::vector<float> x(5 * 128, sign);
      const std::vector<float> out = run_linear(weight, x.data(), 5, InputRounding::kA8);
      const ExactProduct exact(weight, x.data(), 5, 128);
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_NEAR(out[i], exact.value[i], 32 * kHalfUlp * exact.magnitude[i]);
    }
  }
}

TEST_P(LinearPathTest, EachRowIsIndependentOfTheOthers) {
  for (const InputRounding rounding :
       {InputRounding::kNone, InputRounding::kBF16, InputRounding::kA8, InputRounding::kA15}) {
    for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::int4(32, false)}) {
      const QuantizedMatrix weight = random_matrix(scheme, 150, 1120, 24);
      const std::vector<float> x = random_values(40 * 1120, 25);
      const std::vector<float> together = run_linear(weight, x.data(), 40, rounding);
      for (const int64_t i : {0, 3, 17, 39}) {
        // A matrix unit does not take one row.
        const int64_t rows = rounding == InputRounding::kBF16 ? kMatrixLeastRows : 1;
        const int64_t first = std::min<int64_t>(i, 40 - rows);
        const std::vector<float> alone =
            run_linear(weight, x.data() + first * 1120, rows, rounding);
        EXPECT_EQ(alone, std::vector<float>(together.begin() + first * 150,
                                            together.begin() + (first + rows) * 150));
      }
    }
  }
}

TEST_P(LinearPathTest, IndependentOfNumberOfThreads) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 731, 1120, 26);
  const std::vector<float> x = random_values(19 * 1120, 27);
  const int threads = num_threads();
  for (const InputRounding rounding :
       {InputRounding::kNone, InputRounding::kBF16, InputRounding::kA8, InputRounding::kA15}) {
    for (const int64_t m : {1, 19}) {
      set_num_threads(1);
      const std::vector<float> first = run_linear(weight, x.data(), m, rounding);
      for (const int count : {2, 3, 7}) {
        set_num_threads(count);
        EXPECT_EQ(run_linear(weight, x.data(), m, rounding), first) << count << " threads";
      }
    }
  }
  set_num_threads(threads);
}

TEST_P(LinearPathTest, NanAndInfinityPropagate) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t m : {2, 9}) {
    for (const Scheme& scheme :
         {Scheme::int4(0), Scheme::nvfp4(), Scheme::int8(0), Scheme::fp8(0)}) {
      SCOPED_TRACE(scheme.describe());
      const int64_t k = scheme.group_size == 0 ? 172 : 176;
      const QuantizedMatrix weight = random_matrix(scheme, 6, k, 28);
      std::vector<float> w(6 * k);
      dequantize(weight, w.data());
      for (const int64_t position : {int64_t{0}, int64_t{100}, k - 1}) {
        std::vector<float> x = random_values(m * k, 29);
        x[position] = kNan;
        x[k + position] = HUGE_VALF;
        for (const InputRounding rounding : {InputRounding::kNone, InputRounding::kBF16}) {
          const std::vector<float> out = run_linear(weight, x.data(), m, rounding);
          for (int64_t j = 0; j < 6; ++j) {
            EXPECT_TRUE(std::isnan(out[j]));
            const float value = w[j * k + position];
            if (value == 0) {
              EXPECT_TRUE(std::isnan(out[6 + j]));
            } else {
              EXPECT_EQ(out[6 + j], value > 0 ? HUGE_VALF : -HUGE_VALF);
            }
            for (int64_t i = 2; i < m; ++i) EXPECT_TRUE(std::isfinite(out[i * 6 + j]));
          }
        }
        if (!has_integer_inputs(scheme)) continue;
        for (const InputRounding rounding : {InputRounding::kA8, InputRounding::kA15}) {
          const std::vector<float> rounded = run_linear(weight, x.data(), m, rounding);
          for (int64_t i = 0; i < m * 6; ++i) EXPECT_EQ(std::isnan(rounded[i]), i < 12);
        }
      }
    }
  }
}

// Powers of two move results exactly as long as they are numbers.
TEST_P(LinearPathTest, IntegerInputsMayBeLarge) {
  constexpr int64_t kColumns = 96;
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32, false)}) {
    const QuantizedMatrix weight = random_matrix(scheme, 18, kColumns, 44);
    std::vector<float> x = random_values(2 * kColumns, 45);
    const float largest = max_abs(x.data(), 2 * kColumns);
    for (float& value : x) value /= largest;
    for (const InputRounding rounding : {InputRounding::kA8, InputRounding::kA15}) {
      const std::vector<float> small = run_linear(weight, x.data(), 2, rounding);
      std::vector<float> large = x;
      for (float& value : large) value *= 0x1p109f;
      std::vector<float> out = run_linear(weight, large.data(), 2, rounding);
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], small[i] * 0x1p109f);
      large[kColumns + 5] = 0x1p110f;
      out = run_linear(weight, large.data(), 2, rounding);
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i >= 18);
    }
  }
}

TEST_P(LinearPathTest, Bfloat16InputsAreThoseValues) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 33, 96, 30);
  std::vector<float> x = random_values(5 * 96, 31);
  std::vector<uint16_t> bits(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x[i]) >> 16);
    x[i] = std::bit_cast<float>(uint32_t{bits[i]} << 16);
  }
  const PrepackedWeight prepacked(weight);
  for (const InputRounding rounding :
       {InputRounding::kNone, InputRounding::kBF16, InputRounding::kA8, InputRounding::kNvfp4}) {
    std::vector<float> out(5 * 33);
    linear(prepacked, LinearInput(prepacked, bits.data(), 5, 96, rounding), out.data(), 33);
    EXPECT_EQ(out, run_linear(weight, x.data(), 5, rounding));
  }
}

TEST_P(LinearPathTest, InputsInFp4AreTheRoundedOnes) {
  const QuantizedMatrix weight = random_matrix(Scheme::int4(32), 20, 96, 32);
  std::vector<float> x = random_values(4 * 96, 33);
  const Scheme schemes[] = {Scheme::nvfp4(), Scheme::mxfp4()};
  const InputRounding roundings[] = {InputRounding::kNvfp4, InputRounding::kMxfp4};
  for (int i = 0; i < 2; ++i) {
    std::vector<float> rounded(x.size());
    dequantize(quantize_rtn(x.data(), 4, 96, schemes[i], max_abs(x.data(), 4 * 96)),
               rounded.data());
    EXPECT_EQ(run_linear(weight, x.data(), 4, roundings[i]), run_linear(weight, rounded.data(), 4));
  }
  x[100] = std::numeric_limits<float>::quiet_NaN();  // of row 1
  const std::vector<float> out = run_linear(weight, x.data(), 4, InputRounding::kNvfp4);
  for (int64_t i = 0; i < 80; ++i) EXPECT_EQ(std::isnan(out[i]), i / 20 == 1);
}

TEST_P(LinearPathTest, EndsAreAddedInOrder) {
  const QuantizedMatrix weight = random_matrix(Scheme::mxfp4(), 45, 96, 34);
  const std::vector<float> x = random_values(9 * 96, 35), bias = random_values(45, 36);
  const std::vector<float> residual = random_values(9 * 50, 37);
  const PrepackedWeight prepacked(weight);
  for (const InputRounding rounding :
       {InputRounding::kNone, InputRounding::kBF16, InputRounding::kA15}) {
    const std::vector<float> plain = run_linear(weight, x.data(), 9, rounding);
    const LinearInput input(prepacked, x.data(), 9, 96, rounding);
    std::vector<float> out = residual;  // in place
    linear(prepacked, input, out.data(), 50, {bias.data(), out.data(), 50});
    for (int64_t i = 0; i < 9; ++i) {
      for (int64_t j = 0; j < 45; ++j)
        EXPECT_EQ(out[i * 50 + j], plain[i * 45 + j] + bias[j] + residual[i * 50 + j]);
      for (int64_t j = 45; j < 50; ++j) EXPECT_EQ(out[i * 50 + j], residual[i * 50 + j]);
    }
  }
}

TEST_P(LinearPathTest, SwigluIsItsProducts) {
  const QuantizedMatrix gate = random_matrix(Scheme::nvfp4(), 70, 64, 38);
  const QuantizedMatrix up = random_matrix(Scheme::nvfp4(), 70, 64, 39);
  const std::vector<float> x = random_values(5 * 64, 40), bias = random_values(70, 41);
  const PrepackedWeight g(gate), u(up);
  for (const InputRounding rounding :
       {InputRounding::kNone, InputRounding::kBF16, InputRounding::kA15}) {
    const LinearInput input(g, x.data(), 5, 64, rounding);  // shared
    std::vector<float> a(5 * 70), b(5 * 70), out(5 * 70);
    linear(g, input, a.data(), 70, {.bias = bias.data()});
    linear(u, input, b.data(), 70);
    linear_swiglu(g, u, input, out.data(), 70, bias.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const double exact = a[i] / (1 + std::exp(-static_cast<double>(a[i]))) * b[i];
      EXPECT_LE(std::fabs(out[i] - exact), 12 * kHalfUlp * std::fabs(exact));
    }
  }
}

TEST_P(LinearPathTest, OutputMayOverlapTheInputItWasMadeFrom) {
  const QuantizedMatrix weight = random_matrix(Scheme::int4(32), 96, 96, 42);
  std::vector<float> x = random_values(3 * 96, 43);
  const std::vector<float> expected = run_linear(weight, x.data(), 3);
  const PrepackedWeight prepacked(weight);
  linear(prepacked, LinearInput(prepacked, x.data(), 3, 96), x.data(), 96);
  EXPECT_EQ(x, expected);
}

INSTANTIATE_TEST_SUITE_P(Paths, LinearPathTest, kAllCpuPaths, cpu_path_name);

// Sums run in the same order in vectors of eight and of sixteen.
TEST(LinearTest, VectorPathsGiveTheSameBits) {
  const QuantizedMatrix weight = random_matrix(Scheme::nvfp4(), 50, 320, 44);
  const std::vector<float> x = random_values(7 * 320, 45);
  for (const InputRounding rounding : {InputRounding::kNone, InputRounding::kA15}) {
    std::vector<float> first;
    for (const char* path : {"avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_vbmi", "amx"}) {
      if (!machine_has(path)) continue;
      const ForcedPath forced(path);
      const std::vector<float> out = run_linear(weight, x.data(), 7, rounding);
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << path;
    }
  }
}

template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

TEST(LinearTest, WrongArgumentsAreErrors) {
  using ::testing::HasSubstr;
  const PrepackedWeight weight(random_matrix(Scheme::int4(32), 3, 64, 46));
  const PrepackedWeight other(random_matrix(Scheme::int4(64), 3, 64, 47));
  const PrepackedWeight bytes(random_matrix(Scheme::int8(0), 3, 64, 48));
  const std::vector<float> x(128);
  const float* none = nullptr;
  std::vector<float> out(6);
  const auto make = [&](const float* in, int64_t m, int64_t ldx) {
    return message_of<UsageError>([&, in, m, ldx] { LinearInput(weight, in, m, ldx); });
  };
  EXPECT_THAT(make(x.data(), -1, 64), HasSubstr("m is -1"));
  EXPECT_THAT(make(x.data(), 2, 63), HasSubstr("ldx 63"));
  EXPECT_THAT(make(none, 2, 64), HasSubstr("x is a null pointer"));
  EXPECT_THAT(message_of<UnsupportedError>(
                  [&] { LinearInput(bytes, x.data(), 1, 64, InputRounding::kA8); }),
              HasSubstr("int8"));
  const PrepackedWeight narrow(random_matrix(Scheme::int4(0), 3, 24, 49));
  EXPECT_THAT(
      message_of<UsageError>([&] { LinearInput(narrow, x.data(), 1, 24, InputRounding::kNvfp4); }),
      HasSubstr("24"));
  const LinearInput input(weight, x.data(), 2, 64);
  const auto call = [&](const PrepackedWeight& w, float* to, int64_t ldout, LinearEnds ends = {}) {
    return message_of<UsageError>([&, to, ldout] { linear(w, input, to, ldout, ends); });
  };
  EXPECT_THAT(call(other, out.data(), 3), HasSubstr("other weights"));
  EXPECT_THAT(call(weight, out.data(), 2), HasSubstr("ldout 2"));
  EXPECT_THAT(call(weight, nullptr, 3), HasSubstr("out is a null pointer"));
  EXPECT_THAT(call(weight, out.data(), 3, {nullptr, x.data(), 2}), HasSubstr("ld_residual 2"));
  const PrepackedWeight longer(random_matrix(Scheme::int4(32), 4, 64, 50));
  EXPECT_THAT(message_of<UsageError>([&] { linear_swiglu(weight, longer, input, out.data(), 4); }),
              HasSubstr("gate has 3 rows, up 4"));
}

TEST(LinearTest, EmptyProductsWriteNothing) {
  const PrepackedWeight weight(random_matrix(Scheme::nvfp4(), 3, 16, 51));
  const float* none = nullptr;
  const LinearInput nothing(weight, none, 0, 16);
  EXPECT_NO_THROW(linear(weight, nothing, nullptr, 3));
  const PrepackedWeight no_rows(random_matrix(Scheme::nvfp4(), 0, 16, 52));
  const std::vector<float> x(16);
  EXPECT_NO_THROW(linear(no_rows, LinearInput(no_rows, x.data(), 1, 16), nullptr, 0));
}

}  // namespace
}  // namespace curvq
