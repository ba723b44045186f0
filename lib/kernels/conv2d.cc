#include "curvq/kernels/conv2d.h"

#include <algorithm>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"

namespace curvq {
namespace {

int64_t out_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

void check(const PrepackedWeight& weight, const Conv2dShape& s, const float* x, const float* out) {
  const struct {
    const char* name;
    int64_t value, least;
  } fields[] = {{"batch", s.batch, 1},
                {"channels", s.channels, 1},
                {"height", s.height, 1},
                {"width", s.width, 1},
                {"kernel_height", s.kernel_height, 1},
                {"kernel_width", s.kernel_width, 1},
                {"stride_height", s.stride_height, 1},
                {"stride_width", s.stride_width, 1},
                {"padding_height", s.padding_height, 0},
                {"padding_width", s.padding_width, 0},
                {"dilation_height", s.dilation_height, 1},
                {"dilation_width", s.dilation_width, 1}};
  constexpr int64_t kMost = int64_t{1} << 20;  // products of three fit
  for (const auto& field : fields) {
    if (field.value < field.least || field.value > kMost) {
      throw UsageError(format("conv2d: %s is %lld; at least %lld, at most 2^20", field.name,
                              (long long)field.value, (long long)field.least));
    }
  }
  if (s.dilation_height * (s.kernel_height - 1) >= s.height + 2 * s.padding_height ||
      s.dilation_width * (s.kernel_width - 1) >= s.width + 2 * s.padding_width) {
    throw UsageError(format("conv2d: a kernel of %lld x %lld does not fit into %lld x %lld",
                            (long long)s.kernel_height, (long long)s.kernel_width,
                            (long long)s.height, (long long)s.width));
  }
  const int64_t columns = s.channels * s.kernel_height * s.kernel_width;
  if (weight.cols() != columns) {
    throw UsageError(
        format("conv2d: the weight has %lld columns; channels, kernel height and width make %lld",
               (long long)weight.cols(), (long long)columns));
  }
  if (x == nullptr || (out == nullptr && weight.rows() > 0))
    throw UsageError(std::string("conv2d: ") + (x == nullptr ? "x" : "out") + " is a null pointer");
  const float* x_end = x + s.batch * s.channels * s.height * s.width;
  const float* out_end = out + s.batch * weight.rows() * s.out_height() * s.out_width();
  if (x < out_end && out < x_end) throw UsageError("conv2d: out overlaps x");
}

// The inputs [channels, kernel_height, kernel_width] of one output position, zeros outside of x.
void gather(const Conv2dShape& s, const float* x, int64_t position, float* to) {
  const int64_t row = position / s.out_width(), column = position % s.out_width();
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t u = 0; u < s.kernel_height; ++u) {
      const int64_t i = row * s.stride_height + u * s.dilation_height - s.padding_height;
      const bool inside = i >= 0 && i < s.height;
      for (int64_t v = 0; v < s.kernel_width; ++v) {
        const int64_t j = column * s.stride_width + v * s.dilation_width - s.padding_width;
        *to++ = inside && j >= 0 && j < s.width ? x[(c * s.height + i) * s.width + j] : 0.0f;
      }
    }
  }
}

}  // namespace

int64_t Conv2dShape::out_height() const {
  return out_size(height, kernel_height, stride_height, padding_height, dilation_height);
}
int64_t Conv2dShape::out_width() const {
  return out_size(width, kernel_width, stride_width, padding_width, dilation_width);
}

void conv2d(const PrepackedWeight& weight, const Conv2dShape& shape, const float* x, float* out,
            const float* bias, InputRounding rounding) {
  check(weight, shape, x, out);
  // A block of linear(), for which its inputs stay in the second-level cache.
  constexpr int64_t kTile = 240;
  const int64_t outputs = weight.rows(), columns = weight.cols();
  const int64_t positions = shape.out_height() * shape.out_width();
  std::vector<float> inputs(std::min(kTile, positions) * columns);
  std::vector<float> products(std::min(kTile, positions) * outputs);
  LinearEnds ends;
  ends.bias = bias;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const float* image = x + b * shape.channels * shape.height * shape.width;
    float* to = out + b * outputs * positions;
    for (int64_t first = 0; first < positions; first += kTile) {
      const int64_t count = std::min(kTile, positions - first);
      parallel_for(0, count, [&](int64_t p) {
        gather(shape, image, first + p, inputs.data() + p * columns);
      });
      linear(weight, LinearInput(weight, inputs.data(), count, columns, rounding), products.data(),
             outputs, ends);
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t p = 0; p < count; ++p)
          to[o * positions + first + p] = products[p * outputs + o];
      }
    }
  }
}

}  // namespace curvq
