#include "kernels/integer_tile.h"

namespace curvq::internal {

void int16_tile_scalar(const Int16Panel& panel) {
  for (int64_t i = 0; i < panel.m; ++i) {
    const int16_t* x = panel.x + i * panel.ldx;
    float* out = panel.out + i * panel.ldout;
    for (int64_t j = 0; j < kIntegerColumns; ++j) {
      float sum = 0;
      for (int64_t b = 0; b < panel.blocks; ++b) {
        int32_t dot = 0;
        for (int64_t p = 0; p < panel.lanes; ++p) {
          const int16_t* w = panel.w + 2 * ((b * panel.lanes + p) * kIntegerColumns + j);
          const int16_t* xs = x + 2 * (b * panel.lanes + p);
          dot += xs[0] * w[0] + xs[1] * w[1];
        }
        sum += static_cast<float>(dot) * panel.scales[b * kIntegerColumns + j];
      }
      const float scaled = sum * panel.x_scales[i * panel.x_scale_stride];
      out[j] = panel.accumulate ? out[j] + scaled : scaled;
    }
  }
}

}  // namespace curvq::internal
