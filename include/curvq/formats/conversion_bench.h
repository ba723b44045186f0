// Checks and times the conversion of whole matrices.
#pragma once

#include <string>
#include <vector>

#include "curvq/formats/quantized_matrix.h"

namespace curvq {

// Bytes of float32 a second and thread, of processor time.
struct ConversionRate {
  Scheme scheme;
  double quantize = 0;  // quantize_rtn(): scales and codes
  double dequantize = 0;
};

// Every format with every scale rule that it has, on random matrices of 1024 x 4096; the best of
// `rounds`. Throws NumericalError, before anything is timed, if dequantize() does not give the bits
// of decode() or, by ScaleRule::kCurvq, quantize_rtn() not those of encode().
std::vector<ConversionRate> bench_conversions(int rounds);

}  // namespace curvq
