#include "curvq/kernels/conv2d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "curvq/core/parallel.h"
#include "linear_testing.h"

namespace curvq {
namespace {

class Conv2dTest : public CpuPathTest {};

struct Convolution {
  Conv2dShape shape;
  QuantizedMatrix matrix;
  PrepackedWeight weight;
  Guarded<float> x, out, bias;

  Convolution(const Conv2dShape& s, int64_t outputs, const Scheme& scheme)
      : shape(s),
        matrix(random_matrix(scheme, outputs, s.channels * s.kernel_height * s.kernel_width, 1)),
        weight(matrix),
        x(random_values(s.batch * s.channels * s.height * s.width, 2)),
        out(s.batch * outputs * s.out_height() * s.out_width()),
        bias(random_values(outputs, 3)) {}

  void run() { conv2d(weight, shape, x.data(), out.data(), bias.data()); }

  // The sum over the kernel in double precision, in the order of the definition.
  void expect_exact() {
    const Conv2dShape& s = shape;
    const int64_t columns = matrix.cols(), outputs = matrix.rows();
    std::vector<float> w(outputs * columns);
    dequantize(matrix, w.data());
    run();
    int64_t at = 0;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < s.out_height(); ++i) {
          for (int64_t j = 0; j < s.out_width(); ++j, ++at) {
            double sum = bias[o], magnitude = std::fabs(sum);
            for (int64_t c = 0; c < s.channels; ++c) {
              for (int64_t u = 0; u < s.kernel_height; ++u) {
                for (int64_t v = 0; v < s.kernel_width; ++v) {
                  const int64_t row =
                      i * s.stride_height + u * s.dilation_height - s.padding_height;
                  const int64_t col = j * s.stride_width + v * s.dilation_width - s.padding_width;
                  if (row < 0 || row >= s.height || col < 0 || col >= s.width) continue;
                  const double product =
                      static_cast<double>(
                          w[o * columns + (c * s.kernel_height + u) * s.kernel_width + v]) *
                      x[((b * s.channels + c) * s.height + row) * s.width + col];
                  sum += product, magnitude += std::fabs(product);
                }
              }
            }
            ASSERT_LE(std::fabs(out[at] - sum),
                      (static_cast<double>(columns) + 3) * kHalfUlp * magnitude)
                << "output " << o << " at " << i << ", " << j;
          }
        }
      }
    }
  }
};

TEST_P(Conv2dTest, IsTheDefinition) {
  Convolution({.batch = 2,
               .channels = 16,
               .height = 7,
               .width = 5,
               .kernel_height = 3,
               .kernel_width = 3,
               .padding_height = 1,
               .padding_width = 1},
              19, Scheme::nvfp4())
      .expect_exact();
  Convolution({.channels = 32, .height = 17, .width = 18}, 8, Scheme::mxfp4()).expect_exact();
  Convolution({.channels = 3,
               .height = 12,
               .width = 11,
               .kernel_height = 2,
               .kernel_width = 4,
               .stride_height = 3,
               .stride_width = 2,
               .padding_height = 2,
               .dilation_height = 2,
               .dilation_width = 3},
              5, Scheme::int4(0, false))
      .expect_exact();
  Convolution({.channels = 1,
               .height = 1,
               .width = 1,
               .kernel_height = 5,
               .kernel_width = 5,
               .padding_height = 2,
               .padding_width = 2},
              1, Scheme::int8(0))
      .expect_exact();
}

TEST_P(Conv2dTest, ThreadsAndRoundedInputs) {
  Convolution c({.channels = 16, .height = 20, .width = 20, .kernel_height = 3, .kernel_width = 3},
                24, Scheme::nvfp4());
  c.run();
  const std::vector<float> wanted = c.out.values();
  set_num_threads(2);
  c.run();
  set_num_threads(1);
  EXPECT_EQ(c.out.values(), wanted);
  // The first position is the product of its own columns, rounded alike.
  std::vector<float> columns(16 * 9), one(24);
  for (int64_t i = 0; i < 16 * 9; ++i) columns[i] = c.x[i / 9 * 400 + i % 9 / 3 * 20 + i % 3];
  conv2d(c.weight, c.shape, c.x.data(), c.out.data(), nullptr, InputRounding::kA8);
  linear(c.weight, LinearInput(c.weight, columns.data(), 1, 16 * 9, InputRounding::kA8), one.data(),
         24);
  for (int64_t o = 0; o < 24; ++o) EXPECT_EQ(c.out[o * 18 * 18], one[o]);
}

TEST(Conv2dErrorsTest, RefusesWhatCannotBe) {
  Convolution c({.channels = 16, .height = 4, .width = 5, .kernel_height = 3, .kernel_width = 3}, 2,
                Scheme::nvfp4());
  const auto message = [&](auto&& change, const float* x, float* out) -> std::string {
    Conv2dShape shape = c.shape;
    change(shape);
    try {
      conv2d(c.weight, shape, x, out);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  float *x = c.x.data(), *out = c.out.data();
  const auto same = [](Conv2dShape&) {};
  using testing::HasSubstr;
  EXPECT_THAT(message([](auto& s) { s.batch = 0; }, x, out), HasSubstr("batch is 0"));
  EXPECT_THAT(message([](auto& s) { s.stride_width = -1; }, x, out),
              HasSubstr("stride_width is -1"));
  EXPECT_THAT(message([](auto& s) { s.padding_width = -1; }, x, out),
              HasSubstr("padding_width is -1"));
  EXPECT_THAT(message([](auto& s) { s.dilation_height = 2; }, x, out),
              HasSubstr("does not fit into 4 x 5"));
  EXPECT_THAT(message([](auto& s) { s.channels = 15; }, x, out), HasSubstr("144 columns"));
  EXPECT_THAT(message(same, nullptr, out), HasSubstr("x is a null pointer"));
  EXPECT_THAT(message(same, x, nullptr), HasSubstr("out is a null pointer"));
  EXPECT_THAT(message(same, x, x + 3), HasSubstr("overlaps"));
}

INSTANTIATE_TEST_SUITE_P(Paths, Conv2dTest, kAllCpuPaths, cpu_path_name);

}  // namespace
}  // namespace curvq
