#include "compress/kept_codes.h"

namespace curvq::internal {

void encode_kept(const Scheme& scheme, const float* weight, const float* scale,
                 const int8_t* zero_point, const uint8_t* kept, int64_t count, uint8_t* codes,
                 float* rounded) {
  encode_column(scheme, weight, scale, zero_point, count, codes, rounded);
  if (kept == nullptr) return;
  for (int64_t r = 0; r < count; ++r) {
    if (kept[r]) continue;
    codes[r] = encode(scheme, 0.0f, 1.0f, zero_point ? zero_point[r] : 0);
    rounded[r] = 0;
  }
}

}  // namespace curvq::internal
