#include "curvq/kernels/gemm.h"

#include <algorithm>
#include <vector>

#include "curvq/core/parallel.h"
#include "kernels/gemm_path.h"

namespace curvq {
namespace {

// Weight rows that are dequantized at a time: enough to reuse x, few enough to stay in a
// second-level cache (256 KB), and some for every thread.
int64_t rows_per_block(int64_t n, int64_t k) {
  constexpr int64_t kMostFloats = 65536, kMostRows = 16, kLeastRows = 4;
  const int64_t fitting = kMostFloats / std::max<int64_t>(k, 1);
  const int64_t share = (n + num_threads() - 1) / num_threads();
  return std::clamp(std::min(fitting, share) / kLeastRows * kLeastRows, kLeastRows, kMostRows);
}

}  // namespace

void packed_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx, float* out,
                 int64_t ldout) {
  internal::check_gemm(weight, x, m, ldx, out, ldout);
  const internal::GemmPath& path = internal::select_gemm_path();
  const int64_t n = weight.rows(), k = weight.cols();
  if (m == 0 || n == 0) return;
  const int64_t block_rows = rows_per_block(n, k);
  const int64_t num_blocks = (n + block_rows - 1) / block_rows;
  const auto multiply_block = [&](int64_t block) {
    const int64_t first = block * block_rows;
    const int64_t rows = std::min(block_rows, n - first);
    thread_local std::vector<float> dequantized;
    dequantized.resize(block_rows * k);
    for (int64_t j = 0; j < rows; ++j) {
      dequantize_row(weight, first + j, 0, k, dequantized.data() + j * k);
    }
    path.tile(x, ldx, m, dequantized.data(), rows, k, out + first, ldout);
  };
  // Waking threads costs as much as some ten thousand products.
  constexpr int64_t kLeastParallel = 32768;
  if (n * k * m < kLeastParallel) {
    for (int64_t block = 0; block < num_blocks; ++block) multiply_block(block);
  } else {
    parallel_for(0, num_blocks, multiply_block);
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
