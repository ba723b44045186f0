#include "curvq/kernels/gemm_bench.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"

namespace curvq {
namespace {

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<float> random_normal(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}

// What rounding x to integers may move an output by, in |w|: half a step of the largest value in
// each block; 0 for others.
double half_step(InputRounding rounding, const float* x, int64_t begin, int64_t end) {
  if (rounding == InputRounding::kNone || rounding == InputRounding::kBF16) return 0;
  double amax = 0;
  for (int64_t c = begin; c < end; ++c) amax = std::max(amax, std::fabs(static_cast<double>(x[c])));
  return amax / (rounding == InputRounding::kA8 ? 254 : 2 * 16319);
}

// A weight, its copies and inputs for one shape and scheme.
class Case {
 public:
  Case(const GemmShape& shape, const Scheme& scheme, int64_t rotated_bytes)
      : shape_(shape), x_(random_normal(shape.m * shape.k, 1)), out_(shape.m * shape.n) {
    const std::vector<float> w = random_normal(shape.n * shape.k, 2);
    weight_ =
        quantize_rtn(w.data(), shape.n, shape.k, scheme, max_abs(w.data(), shape.n * shape.k));
    copies_.emplace_back(weight_);
    constexpr int64_t kFewRows = 4, kMost = 4096;
    if (shape.m > kFewRows) return;
    const int64_t count = rotated_bytes / std::max<int64_t>(1, copies_[0].memory_bytes()) + 1;
    while (static_cast<int64_t>(copies_.size()) < std::min(count, kMost))
      copies_.emplace_back(weight_);
  }

  // Checks up to 32 columns and 8 rows, the first and last among them; returns the largest error.
  double check(InputRounding rounding) {
    run(rounding);
    double largest = 0;
    std::vector<float> w(shape_.k);
    for (const int64_t j : spread(shape_.n, 32)) {
      dequantize_row(weight_, j, 0, shape_.k, w.data());
      for (const int64_t i : spread(shape_.m, 8))
        largest = std::max(largest, check(rounding, i, j, w.data()));
    }
    return largest;
  }

  // Processor seconds of a product, the next copy of the weight each time.
  double time(InputRounding rounding, int64_t times) {
    const double begin = process_seconds();
    for (int64_t i = 0; i < times; ++i) run(rounding);
    return (process_seconds() - begin) / static_cast<double>(times) / num_threads();
  }

  const PrepackedWeight& weight() const { return copies_.back(); }

 private:
  static std::vector<int64_t> spread(int64_t size, int64_t most) {
    std::vector<int64_t> out;
    const int64_t count = std::min(size, most);
    for (int64_t i = 0; i < count; ++i)
      out.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
    return out;
  }

  void run(InputRounding rounding) {
    const PrepackedWeight& weight = copies_[next_++ % copies_.size()];
    linear(weight, LinearInput(weight, x_.data(), shape_.m, shape_.k, rounding), out_.data(),
           shape_.n);
  }

  double check(InputRounding rounding, int64_t i, int64_t j, const float* w) const {
    const float* x = x_.data() + i * shape_.k;
    const Scheme& scheme = weight_.scheme();
    const int64_t group = scheme.group_size == 0 ? shape_.k : scheme.group_size;
    constexpr int64_t kBlock = 32;
    double sum = 0, magnitude = 0, moved = 0;
    for (int64_t g = 0; g < shape_.k; g += group) {
      for (int64_t b = g; b < g + group; b += kBlock) {
        const int64_t end = std::min(b + kBlock, g + group);
        const double step = half_step(rounding, x, b, end);
        for (int64_t c = b; c < end; ++c) {
          const double product = static_cast<double>(x[c]) * static_cast<double>(w[c]);
          sum += product, magnitude += std::fabs(product);
          moved += step * std::fabs(static_cast<double>(w[c]));
          if (rounding == InputRounding::kBF16) moved += 0x1p-8 * std::fabs(product);  // x and w
        }
      }
    }
    const double error = std::fabs(static_cast<double>(out_[i * shape_.n + j]) - sum);
    // Of k + 2 roundings; an input moved by a hundredth more than half a step has room for that of
    // its quotient.
    const double bound =
        1.01 * moved + (static_cast<double>(shape_.k) + 22) * 0x1p-24 * (magnitude + 2 * moved);
    if (!(error <= bound)) {
      throw NumericalError(format(
          "bench gemm: %s, %s, row %lld, column %lld: %.9g instead of %.9g, off by more than %.3g",
          input_rounding_name(rounding).c_str(), scheme.describe().c_str(), (long long)i,
          (long long)j, static_cast<double>(out_[i * shape_.n + j]), sum, bound));
    }
    return magnitude > 0 ? error / magnitude : 0;
  }

  GemmShape shape_;
  std::vector<float> x_, out_;
  QuantizedMatrix weight_;
  std::vector<PrepackedWeight> copies_;
  size_t next_ = 0;
};

void check_shape(const GemmShape& shape, const Scheme& scheme) {
  if (shape.m < 1 || shape.n < 1 || shape.k < 1) {
    throw UsageError(format("bench gemm: shape %lld,%lld,%lld; sizes are at least 1",
                            (long long)shape.m, (long long)shape.n, (long long)shape.k));
  }
  scheme.num_groups(shape.k);  // throws
}

}  // namespace

std::string input_rounding_name(InputRounding rounding) {
  switch (rounding) {
    case InputRounding::kNone:
      return "exact";
    case InputRounding::kBF16:
      return "bf16";
    case InputRounding::kA15:
      return "a15";
    case InputRounding::kA8:
      return "a8";
    case InputRounding::kNvfp4:
      return "nvfp4";
    case InputRounding::kMxfp4:
      break;
  }
  return "mxfp4";
}

double GemmBenchRow::gflops() const {
  return 2e-9 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k) / seconds;
}
double GemmBenchRow::weight_gbps() const {
  return 1e-9 * static_cast<double>(weight_bytes) / seconds;
}

GemmBench bench_gemm(const GemmBenchOptions& options) {
  for (const GemmShape& shape : options.shapes) {
    for (const Scheme& scheme : options.schemes) check_shape(shape, scheme);
  }
  GemmBench bench;
  bench.limits = measure_machine_limits();
  Progress progress("bench gemm",
                    static_cast<int64_t>(options.shapes.size() * options.schemes.size()));
  for (const GemmShape& shape : options.shapes) {
    for (const Scheme& scheme : options.schemes) {
      Case work(shape, scheme, options.rotated_bytes);
      std::vector<InputRounding> roundings;
      const size_t first = bench.rows.size();
      const double ops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                         static_cast<double>(shape.k);
      for (const InputRounding rounding : options.roundings) {
        if (!has_input_rounding(scheme, rounding)) continue;
        roundings.push_back(rounding);
        GemmBenchRow row;
        row.kernel = input_rounding_name(rounding), row.format = scheme.describe();
        row.shape = shape;
        row.weight_bytes = work.weight().memory_bytes();
        row.prepack_seconds = work.weight().prepack_seconds();
        row.intensity = ops / static_cast<double>(row.weight_bytes);
        row.max_error = work.check(rounding);
        row.least_seconds =
            least_seconds(bench.limits, static_cast<double>(row.weight_bytes), ops, rounding);
        row.seconds = std::numeric_limits<double>::infinity();
        bench.rows.push_back(row);
      }
      std::vector<int64_t> times;  // that take long enough for the clock
      constexpr double kLongEnough = 0.01;
      for (const InputRounding rounding : roundings)
        times.push_back(1 + static_cast<int64_t>(kLongEnough / work.time(rounding, 3)));
      for (int round = 0; round < options.rounds; ++round) {
        for (size_t i = 0; i < roundings.size(); ++i) {
          double& seconds = bench.rows[first + i].seconds;
          seconds = std::min(seconds, work.time(roundings[i], times[i]));
        }
      }
      progress.advance();
    }
  }
  return bench;
}

}  // namespace curvq
