#include <bit>
#include <cmath>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/kernels/gemm.h"
#include "formats/simd_clones.h"
#include "kernels/integer_gemm.h"

namespace curvq {
namespace {

using internal::Blocks;

CURVQ_SIMD_CLONES void round_to_int16(const float* x, int64_t count, float inverse_scale,
                                      int16_t* out) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23 rounds to an integer, ties to even
  for (int64_t i = 0; i < count; ++i) {
    const float rounded = x[i] * inverse_scale + kMagic;
    out[i] = static_cast<int16_t>(std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kMagic));
  }
}

// One scale a row and panel: amax / 32767.
struct Int16Kind {
  using X = int16_t;
  using W = int16_t;
  using Panel = internal::Int16Panel;
  using Tile = internal::Int16Tile;
  static constexpr int64_t kTogether = 2, kMostWidth = 256, kWidthMultiple = 8, kPanelWidth = 256;
  static constexpr bool kOffsets = false;

  static int64_t scales_per_row(const Blocks& blocks) { return blocks.num_panels(); }
  static int64_t first_scale(const Blocks&, int64_t panel) { return panel; }

  static void round(const float* x, const Blocks& blocks, int16_t* out, float* scales) {
    for (int64_t p = 0; p < blocks.num_panels(); ++p) scales[p] = round_panel(x, p, blocks, out);
  }

  static float round_panel(const float* x, int64_t panel, const Blocks& blocks, int16_t* out) {
    const int64_t first = panel * blocks.per_panel;
    const int64_t last = std::min(blocks.count, first + blocks.per_panel);
    const int64_t begin = blocks.begin(first);
    const float amax = max_abs(x + begin, blocks.end(last - 1) - begin);
    const bool finite = std::isfinite(amax);
    if (!finite || amax < 32767 * std::numeric_limits<float>::min()) {
      std::fill(out + first * blocks.width, out + last * blocks.width, int16_t{0});
      return finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    }
    for (int64_t b = first; b < last; ++b) {
      const int64_t length = blocks.end(b) - blocks.begin(b);
      int16_t* block = out + b * blocks.width;
      round_to_int16(x + blocks.begin(b), length, 32767 / amax, block);
      std::fill(block + length, block + blocks.width, int16_t{0});
    }
    return amax / 32767;
  }
};

}  // namespace

bool has_int16_path(const Scheme& scheme) { return scheme.element != ElementType::kE4M3; }

void packed_gemm_int16(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                       float* out, int64_t ldout) {
  internal::check_gemm(weight, x, m, ldx, out, ldout);
  if (!has_int16_path(weight.scheme())) {
    throw UnsupportedError("packed_gemm_int16: " + weight.scheme().describe() +
                           " weights are no small integers; use packed_gemm");
  }
  internal::integer_gemm<Int16Kind>(weight, x, m, ldx, internal::select_gemm_path().int16_tile, out,
                                    ldout);
}

}  // namespace curvq
