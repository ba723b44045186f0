#include "kernels/gemm_tile.h"

namespace curvq::internal {
namespace {

// Independent partial sums, so that additions need not wait for each other.
constexpr int kLanes = 8;

float dot(const float* x, const float* w, int64_t k_size) {
  float sums[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= k_size; k += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[k + lane] * w[k + lane];
  }
  for (int lane = 0; k < k_size; ++k, ++lane) sums[lane] += x[k] * w[k];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

}  // namespace

void gemm_tile_scalar(const float* x, int64_t ldx, int64_t m, const float* w, int64_t rows,
                      int64_t k_size, float* out, int64_t ldout) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < rows; ++j) {
      out[i * ldout + j] = dot(x + i * ldx, w + j * k_size, k_size);
    }
  }
}

}  // namespace curvq::internal
