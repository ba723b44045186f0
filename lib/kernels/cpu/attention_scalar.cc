#include <bit>
#include <cmath>

#include "kernels/attention_kernels.h"

namespace curvq::internal {
namespace {

// Arrays for vectors.
struct Scalar {
  static constexpr int kLanes = 8;
  struct F {
    float lane[8];
  };
  template <class Fn>
  static F lanes(Fn&& fn) {
    F r;
    for (int i = 0; i < 8; ++i) r.lane[i] = fn(i);
    return r;
  }
  static F load(const float* p) {
    return lanes([&](int i) { return p[i]; });
  }
  static void store(float* p, const F& v) { std::memcpy(p, v.lane, sizeof(v)); }
  static F set1(float v) {
    return lanes([&](int) { return v; });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return lanes([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F mul(const F& a, const F& b) {
    return lanes([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F add(const F& a, const F& b) {
    return lanes([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(const F& a, const F& b) {
    return lanes([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F max(const F& a, const F& b) {
    return lanes([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F power_of_two(const F& shifted) {
    return lanes([&](int i) {
      const uint32_t exponent = std::bit_cast<uint32_t>(shifted.lane[i]) << 23;
      return std::bit_cast<float>(exponent + 0x3f800000u);
    });
  }
  static void transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) to[j * to_stride + i] = from[i * stride + j];
    }
  }
};

}  // namespace

void attention_step_scalar(const AttentionTile& tile, int64_t first, int64_t count, const float* k,
                           int64_t k_stride, const float* v, int64_t v_stride) {
  AttentionKernels<Scalar>::step(tile, first, count, k, k_stride, v, v_stride);
}

}  // namespace curvq::internal
