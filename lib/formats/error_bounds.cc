#include "curvq/formats/error_bounds.h"

#include <algorithm>
#include <cmath>

#include "curvq/formats/minifloat.h"
#include "curvq/formats/scheme.h"

namespace curvq {
namespace {

constexpr int64_t kRows = 4096, kCols = 4096;

std::vector<double> integers(int largest) {
  std::vector<double> levels;
  for (int i = 0; i <= largest; ++i) levels.push_back(i);
  return levels;
}

// Finite magnitudes of the codes 0 to `last`.
std::vector<double> magnitudes(float (*decode)(uint8_t), int last) {
  std::vector<double> levels;
  for (int code = 0; code <= last; ++code)
    levels.push_back(static_cast<double>(decode(static_cast<uint8_t>(code))));
  return levels;
}

// Between two levels, the error grows up to their midpoint, and faster than the ratio does: so the
// largest error over the ratio is at a midpoint or at an end.
void find_max_error(FormatBounds* bounds) {
  std::vector<double> candidates = {bounds->ratio_low, bounds->ratio_high};
  for (size_t i = 1; i < bounds->levels.size(); ++i) {
    const double middle = (bounds->levels[i - 1] + bounds->levels[i]) / 2;
    if (middle > bounds->ratio_low && middle < bounds->ratio_high) candidates.push_back(middle);
  }
  for (const double ratio : candidates) {
    double error = rounding_error(bounds->levels, ratio);
    for (size_t i = 1; i < bounds->levels.size(); ++i) {
      const double half = (bounds->levels[i] - bounds->levels[i - 1]) / 2;
      if (bounds->levels[i - 1] + half <= ratio) error = std::max(error, half);
    }
    if (error / ratio <= bounds->max_error) continue;
    bounds->max_error = error / ratio;
    bounds->worst_ratio = ratio;
  }
}

FormatBounds make(const char* name, const char* element, const char* scale,
                  std::vector<double> levels, double bits, double ratio_low, double ratio_high) {
  FormatBounds bounds;
  bounds.name = name;
  bounds.element = element;
  bounds.scale = scale;
  bounds.levels = std::move(levels);
  bounds.bits_per_weight = bits;
  bounds.ratio_low = ratio_low;
  bounds.ratio_high = ratio_high;
  find_max_error(&bounds);
  // Halfway to the first level is rounded to zero, which is even.
  bounds.zero_low = bounds.levels[1] / 2 / ratio_high;
  bounds.zero_high = bounds.levels[1] / 2 / ratio_low;
  return bounds;
}

// A float of `mantissa_bits` whose smallest normal value is min_normal, with one scale.
void add_relative_bound(int mantissa_bits, double min_normal, FormatBounds* bounds) {
  bounds->relative_error = std::ldexp(1.0, -mantissa_bits - 1);
  bounds->relative_from = min_normal / bounds->ratio_low;
}

double bits_of(Scheme scheme) {
  scheme.scale_dtype = DType::kBF16;
  return scheme.bits_per_weight(kRows, kCols);
}

}  // namespace

double rounding_error(const std::vector<double>& levels, double x) {
  const auto above = std::lower_bound(levels.begin(), levels.end(), x);
  if (above == levels.end()) return x - levels.back();
  if (above == levels.begin()) return *above - x;
  return std::min(*above - x, x - *(above - 1));
}

std::vector<FormatBounds> format_bounds() {
  const std::vector<double> e2m1 = magnitudes(e2m1_to_f32, 7);
  const double int4 = bits_of(Scheme::int4()), int8 = bits_of(Scheme::int8());
  const double fp8 = bits_of(Scheme::fp8()), mxfp4 = bits_of(Scheme::mxfp4());
  std::vector<FormatBounds> all = {
      make("int4", "integers -8..7", "A / 7.5", integers(7), int4, 7.5, 7.5),
      make("int4", "integers -7..7", "A / 7", integers(7), int4, 7, 7),
      make("int8", "integers -128..127", "A / 127.5", integers(127), int8, 127.5, 127.5),
      make("int8", "integers -127..127", "A / 127", integers(127), int8, 127, 127),
      make("fp8", "E4M3", "A / 448", magnitudes(e4m3_to_f32, 0x7e), fp8, 448, 448),
      make("fp8", "E5M2", "A / 57344", magnitudes(e5m2_to_f32, 0x7b), fp8, 57344, 57344),
      make("mxfp4 floor", "E2M1", "2^(floor(log2 A) - 2)", e2m1, mxfp4, 4, 8),
      make("mxfp4 even", "E2M1", "the same, doubled from 1.75 on", e2m1, mxfp4, 3.5, 7),
      make("mxfp4 ceil", "E2M1", "2^(ceil(log2 A) - 2)", e2m1, mxfp4, 2, 4),
      make("mxfp4 rceil", "E2M1", "2^ceil(log2(A / 6))", e2m1, mxfp4, 3, 6),
      // E4M3 rounds A / 6 to no less than 16/17 and no more than 18/17 of it: halfway from 1
      // to 1.125.
      make("nvfp4", "E2M1", "A / 6, rounded to E4M3", e2m1, bits_of(Scheme::nvfp4()), 6.0 * 17 / 18,
           6.0 * 17 / 16),
  };
  add_relative_bound(3, std::ldexp(1.0, -6), &all[4]);
  add_relative_bound(2, std::ldexp(1.0, -14), &all[5]);
  return all;
}

}  // namespace curvq
