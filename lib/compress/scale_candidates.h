// Scales near a group's own that its format can store.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

struct StoredScale {
  float value = 0;   // what codes are multiplied with
  uint8_t code = 0;  // E4M3 or E8M0; 0 for float scales
};

// NVFP4: the E4M3 codes whose scales are 0.6 to 1.95 times the present one. Integers and FP8: 0.45
// to 1.05 times, in steps of 0.05, rounded to the stored dtype. MXFP4: a power of two down and up,
// and the present one.
class ScaleCandidates {
 public:
  explicit ScaleCandidates(const ScaleGrid& grid);

  // How many any group may have.
  int64_t count() const { return count_; }
  // The c-th of a group whose scale is `base`; the last ones may repeat.
  StoredScale at(int64_t c, StoredScale base) const;

 private:
  const ScaleGrid& grid_;
  int64_t count_;
  std::vector<uint8_t> first_, last_;  // E4M3 codes, by code
};

// Candidates need a group that a strip's buffers hold.
bool can_search_scales(const Scheme& scheme);

}  // namespace curvq::internal
