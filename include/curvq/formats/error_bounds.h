// What rounding to nearest costs in each number format, as multiples of A, the largest magnitude of
// the weights that share a scale.
#pragma once

#include <string>
#include <vector>

namespace curvq {

struct FormatBounds {
  std::string name;     // "mxfp4"
  std::string element;  // "E2M1", "integers -8..7"
  std::string scale;    // how it comes from A: "A / 7.5"
  // Magnitudes that an element can have, ascending from 0; of integers, the positive ones.
  std::vector<double> levels;
  double bits_per_weight =
      0;  // in a [4096, 4096] matrix, scales (bfloat16 where they are floats) included
  // A / scale lies between these two, whatever A (and for NVFP4, while the block's scale is a
  // normal E4M3 number: A at least 1/28672 of the tensor's largest magnitude).
  double ratio_low = 0, ratio_high = 0;

  // sup |w - q(w)| / A over all A and all |w| <= A, and the A / scale at which it is reached.
  double max_error = 0, worst_ratio = 0;
  // Floats with one scale: |w - q(w)| <= relative_error |w| from relative_from A on; 0: no such
  // bound.
  double relative_error = 0, relative_from = 0;
  // Weights of magnitude up to zero_low A become 0 whatever A, those above zero_high A never.
  double zero_low = 0, zero_high = 0;
};

// INT4 and INT8 with both usual scales, E4M3, E5M2, MXFP4 by each rule, NVFP4.
std::vector<FormatBounds> format_bounds();

// |x - nearest level|, for x >= 0.
double rounding_error(const std::vector<double>& levels, double x);

}  // namespace curvq
