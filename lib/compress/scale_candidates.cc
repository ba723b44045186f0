#include "compress/scale_candidates.h"

#include <algorithm>
#include <cmath>

#include "curvq/formats/minifloat.h"

namespace curvq::internal {
namespace {

constexpr uint8_t kLargestE4M3 = 0x7e;
constexpr float kLowE4M3 = 0.6f, kHighE4M3 = 1.95f;
constexpr float kLowFloat = 0.45f, kStepFloat = 0.05f;
constexpr int64_t kFloatSteps = 13;

}  // namespace

bool can_search_scales(const Scheme& scheme) {
  return scheme.group_size > 1 && scheme.group_size <= 256;
}

ScaleCandidates::ScaleCandidates(const ScaleGrid& grid) : grid_(grid) {
  switch (grid.scheme.scale_type) {
    case ScaleType::kFloat:
      count_ = kFloatSteps;
      break;
    case ScaleType::kE8M0:
      count_ = 3;
      break;
    case ScaleType::kE4M3:
      count_ = 1;
      first_.resize(kLargestE4M3 + 1);
      last_.resize(kLargestE4M3 + 1);
      for (int code = 1; code <= kLargestE4M3; ++code) {
        const float base = e4m3_to_f32(static_cast<uint8_t>(code));
        int first = code, last = code;
        while (first > 1 && e4m3_to_f32(static_cast<uint8_t>(first - 1)) >= kLowE4M3 * base)
          --first;
        while (last < kLargestE4M3 &&
               e4m3_to_f32(static_cast<uint8_t>(last + 1)) <= kHighE4M3 * base)
          ++last;
        first_[code] = static_cast<uint8_t>(first);
        last_[code] = static_cast<uint8_t>(last);
        count_ = std::max<int64_t>(count_, last - first + 1);
      }
      break;
  }
}

StoredScale ScaleCandidates::at(int64_t c, StoredScale base) const {
  switch (grid_.scheme.scale_type) {
    case ScaleType::kFloat: {
      const float factor = kLowFloat + kStepFloat * static_cast<float>(c);
      const float scale = round_to_dtype(base.value * factor, grid_.scheme.scale_dtype);
      return {std::isfinite(scale) && scale != 0 ? scale : base.value, 0};
    }
    case ScaleType::kE8M0: {
      const auto code = static_cast<uint8_t>(std::clamp<int64_t>(base.code + c - 1, 1, 253));
      return {e8m0_to_f32(code), code};
    }
    case ScaleType::kE4M3:
      break;
  }
  const uint8_t present = base.code & 0x7f;
  if (present == 0 || present > kLargestE4M3) return base;
  const auto code = static_cast<uint8_t>(std::min<int64_t>(first_[present] + c, last_[present]));
  return {e4m3_to_f32(code) / grid_.global_divisor, code};
}

}  // namespace curvq::internal
