// Codes of matrices of which a mask leaves only a part.
#pragma once

#include <cstdint>
#include <vector>

#include "curvq/formats/quantized_matrix.h"

namespace curvq::internal {

// encode_column(), but zero, and the code for it, where kept [count] is 0. kept may be null: all.
void encode_kept(const Scheme& scheme, const float* weight, const float* scale,
                 const int8_t* zero_point, const uint8_t* kept, int64_t count, uint8_t* codes,
                 float* rounded);

// Row-major [rows, cols] to [cols, rows].
template <typename T>
std::vector<T> transposed(const std::vector<T>& values, int64_t rows, int64_t cols) {
  std::vector<T> out(values.size());
  if (values.empty()) return out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) out[c * rows + r] = values[r * cols + c];
  }
  return out;
}

}  // namespace curvq::internal
