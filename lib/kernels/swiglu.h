// The gate of a SwiGLU layer on float32 in memory.
#pragma once

#include <cstdint>

namespace curvq::internal {

// out[i] = g / (1 + exp(-g)) * u with g = gate[i] and u = up[i]; out may be either. Within 12 u
// |out|, u = 2^-24, of the exact value, or, where g < -87, zero instead of at most 1.5e-36 |u|. NaN
// and infinity give what the formula gives.
void swiglu(const float* gate, const float* up, int64_t count, float* out);

}  // namespace curvq::internal
