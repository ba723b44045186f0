#include "curvq/kernels/gemm.h"

#include <algorithm>

#include "curvq/kernels/linear.h"
#include "kernels/gemm_path.h"

namespace curvq {

void packed_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx, float* out,
                 int64_t ldout) {
  internal::check_gemm(weight, x, m, ldx, out, ldout);
  const int64_t n = weight.rows();
  if (m == 0 || n == 0) return;
  if (weight.cols() == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(out + i * ldout, n, 0.0f);
    return;
  }
  const PrepackedWeight prepacked(weight);
  constexpr int64_t kRows = 1024;  // copied at a time
  for (int64_t row = 0; row < m; row += kRows) {
    const LinearInput input(prepacked, x + row * ldx, std::min(kRows, m - row), ldx);
    linear(prepacked, input, out + row * ldout, ldout);
  }
}

const char* packed_gemm_path() { return internal::select_gemm_path().name; }

void packed_gemm_reference(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                           double* out, int64_t ldout) {
  internal::check_gemm(weight, x, m, ldx, out, ldout);
  const ScaleGrid& grid = weight.grid;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < weight.rows(); ++j) {
      double sum = 0;
      for (int64_t c = 0; c < weight.cols(); ++c) {
        const int64_t g = grid.scheme.group_of(c);
        const double w =
            decode(grid.scheme, weight.code(j, c), grid.scale(j, g), grid.zero_point(j, g));
        sum += w * static_cast<double>(x[i * ldx + c]);
      }
      out[i * ldout + j] = sum;
    }
  }
}

}  // namespace curvq
