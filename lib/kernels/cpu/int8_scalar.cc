#include "kernels/integer_tile.h"

namespace curvq::internal {

void int8_tile_scalar(const Int8Panel& panel) {
  for (int64_t i = 0; i < panel.m; ++i) {
    const uint8_t* x = panel.x + i * panel.ldx;
    const float* x_scales = panel.x_scales + i * panel.x_scale_stride;
    float* out = panel.out + i * panel.ldout;
    for (int64_t j = 0; j < kIntegerColumns; ++j) {
      float sum = 0;
      for (int64_t b = 0; b < panel.blocks; ++b) {
        int32_t dot = 0;
        for (int64_t c = 0; c < 4 * panel.lanes; ++c) {
          const int64_t lane = b * panel.lanes + c / 4;
          dot += (x[4 * lane + c % 4] - 128) * panel.w[4 * (lane * kIntegerColumns + j) + c % 4];
        }
        sum += static_cast<float>(dot) * (panel.scales[b * kIntegerColumns + j] * x_scales[b]);
      }
      out[j] = panel.accumulate ? out[j] + sum : sum;
    }
  }
}

}  // namespace curvq::internal
