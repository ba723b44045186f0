#include "curvq/formats/conversion_bench.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <random>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "formats/rules/rule.h"

namespace curvq {
namespace {

constexpr int64_t kRows = 1024, kCols = 4096;

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> all;
  for (const Scheme& plain : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32), Scheme::int4(128),
                              Scheme::int4(128, false), Scheme::int8(32), Scheme::int8(0),
                              Scheme::int8(128, false), Scheme::fp8(0)}) {
    for (const ScaleRule rule :
         {ScaleRule::kCurvq, ScaleRule::kCompressedTensors, ScaleRule::kModelOpt,
          ScaleRule::kTorchAo, ScaleRule::kLlamaCpp, ScaleRule::kFourOverSix}) {
      Scheme scheme = plain;
      scheme.rule = rule;
      if (internal::rule_of(rule).supports(scheme)) all.push_back(scheme);
    }
  }
  return all;
}

// Some rows, element by element.
void check(const std::vector<float>& weight, const QuantizedMatrix& matrix,
           const std::vector<float>& back) {
  const Scheme& scheme = matrix.scheme();
  for (int64_t r = 0; r < kRows; r += 97) {
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t g = scheme.group_of(c), i = r * kCols + c;
      const float scale = matrix.grid.scale(r, g);
      const int zero = matrix.grid.zero_point(r, g);
      const uint8_t code = scheme.rule == ScaleRule::kCurvq ? encode(scheme, weight[i], scale, zero)
                                                            : matrix.code(r, c);
      if (matrix.code(r, c) == code &&
          std::bit_cast<uint32_t>(back[i]) ==
              std::bit_cast<uint32_t>(decode(scheme, code, scale, zero)))
        continue;
      throw NumericalError(
          format("bench formats: %s: row %lld, column %lld is not what one element "
                 "alone gives",
                 scheme.describe().c_str(), (long long)r, (long long)c));
    }
  }
}

}  // namespace

std::vector<ConversionRate> bench_conversions(int rounds) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> weight(kRows * kCols), back(kRows * kCols);
  for (float& w : weight) w = normal(generator);
  const float amax = max_abs(weight.data(), kRows * kCols);
  std::vector<ConversionRate> rates;
  for (const Scheme& scheme : all_schemes()) {
    const QuantizedMatrix matrix = quantize_rtn(weight.data(), kRows, kCols, scheme, amax);
    dequantize(matrix, back.data());
    check(weight, matrix, back);
    rates.push_back({scheme});
  }
  Progress progress("bench formats", static_cast<int64_t>(rates.size()));
  constexpr double kBytes = 4 * kRows * kCols;
  for (ConversionRate& rate : rates) {
    for (int round = 0; round < rounds; ++round) {
      const double begin = process_seconds();
      const QuantizedMatrix matrix = quantize_rtn(weight.data(), kRows, kCols, rate.scheme, amax);
      const double middle = process_seconds();
      dequantize(matrix, back.data());
      rate.quantize = std::max(rate.quantize, kBytes / (middle - begin));
      rate.dequantize = std::max(rate.dequantize, kBytes / (process_seconds() - middle));
    }
    progress.advance();
  }
  return rates;
}

}  // namespace curvq
