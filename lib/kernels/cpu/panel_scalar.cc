#include <bit>
#include <cstring>

#include "kernels/panel_byte_kernels.h"

namespace curvq::internal {
namespace {

float half_to_float(uint32_t bits) {  // finite
  const uint32_t magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
  // The bits in a float32's place, whose bias is 112 more.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// Arrays for vectors, operations written out; the longer ones are compiled once, not into every
// kernel.
struct Scalar {
  static constexpr int kLanes = 16;
  struct F {
    float lane[kLanes];
  };
  struct I {
    uint32_t lane[kLanes];
  };
  using Dot = I;
  static constexpr int kFloatRows = 1, kFloatPanels = 1, kByteRows = 1, kBytePanels = 1;

  template <class R, class Fn>
  static R lanes(Fn&& fn) {
    R r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = fn(i);
    return r;
  }

  static F load(const float* p) {
    return lanes<F>([&](int i) { return p[i]; });
  }
  static void store(float* p, F v) { std::memcpy(p, v.lane, sizeof(v)); }
  static F set1(float v) {
    return lanes<F>([&](int) { return v; });
  }
  static F fma(F a, F b, F c) {
    return lanes<F>([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  static F mul(F a, F b) {
    return lanes<F>([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F add(F a, F b) {
    return lanes<F>([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(F a, F b) {
    return lanes<F>([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F quotient(F a, F b, F) {
    return lanes<F>([&](int i) { return a.lane[i] / b.lane[i]; });
  }

  static I load_int(const void* p) {
    I v;
    std::memcpy(v.lane, p, sizeof(v));
    return v;
  }
  static void store_int(void* p, I v) { std::memcpy(p, v.lane, sizeof(v)); }
  static I set1_int(int32_t v) {
    return lanes<I>([&](int) { return static_cast<uint32_t>(v); });
  }
  static I add_int(I a, I b) {
    return lanes<I>([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F scaled(I v, F scale, F) {
    return mul(to_float(add_int(v, set1_int(-kFloatBase))), scale);
  }
  static I mul_int(I a, I b) {
    return lanes<I>([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F to_float(I v) {
    return lanes<F>([&](int i) { return static_cast<float>(static_cast<int32_t>(v.lane[i])); });
  }

  static I load_table(const uint8_t* p) {
    I table{};
    std::memcpy(table.lane, p, 16);
    return table;
  }
  static I low_nibbles(I v) {
    return lanes<I>([&](int i) { return v.lane[i] & 0x0f0f0f0fu; });
  }
  static I high_nibbles(I v) {
    return lanes<I>([&](int i) { return v.lane[i] >> 4 & 0x0f0f0f0fu; });
  }
  static uint32_t byte_of(uint32_t dword, int b) { return dword >> (8 * b) & 255; }
  template <class Fn>
  static I bytes(Fn&& fn) {
    return lanes<I>([&](int i) {
      uint32_t dword = 0;
      for (int b = 0; b < 4; ++b) dword |= (fn(i, b) & 255) << (8 * b);
      return dword;
    });
  }
  [[gnu::noinline]] static I lookup(const I& table, I v) {
    return bytes([&](int i, int b) {
      const uint32_t index = byte_of(v.lane[i], b);
      return byte_of(table.lane[index / 4], static_cast<int>(index % 4));
    });
  }
  static I lookup_low(I table, I codes) { return lookup(table, low_nibbles(codes)); }
  static I lookup_high(I table, I codes) { return lookup(table, high_nibbles(codes)); }
  [[gnu::noinline]] static I sub_bytes(I x, I y) {
    return bytes([&](int i, int b) { return byte_of(x.lane[i], b) - byte_of(y.lane[i], b); });
  }

  static constexpr bool kLooksUpFloats = false;
  template <int kByte>
  static F byte(I v) {
    return lanes<F>(
        [&](int i) { return static_cast<float>(static_cast<int8_t>(byte_of(v.lane[i], kByte))); });
  }
  template <int kByte>
  [[gnu::noinline]] static F e4m3(I v) {
    return lanes<F>([&](int i) {
      const uint32_t code = byte_of(v.lane[i], kByte);
      return 256 * half_to_float((code & 127) << 7 | (code & 128) << 8);
    });
  }

  static F e4m3_as_f16(const uint8_t* p) {
    return lanes<F>([&](int i) { return half_to_float(uint32_t{p[i]} << 7); });
  }
  static F e8m0_scale(const uint8_t* p) {
    return lanes<F>([&](int i) {
      return std::bit_cast<float>(p[i] == 0 ? 0x00400000u : uint32_t{p[i]} << 23);
    });
  }
  static uint32_t load_16_bits(const uint8_t* p) { return p[0] | uint32_t{p[1]} << 8; }
  [[gnu::noinline]] static F f16_scale(const uint8_t* p) {
    return lanes<F>([&](int i) { return half_to_float(load_16_bits(p + 2 * i)); });
  }
  static F bf16_scale(const uint8_t* p) {
    return lanes<F>([&](int i) { return std::bit_cast<float>(load_16_bits(p + 2 * i) << 16); });
  }

  [[gnu::noinline]] static void dot(Dot& sum, I u, I s) {
    for (int i = 0; i < kLanes; ++i) {
      int32_t total = 0;
      for (int b = 0; b < 4; ++b) {
        total += static_cast<int32_t>(byte_of(u.lane[i], b)) *
                 static_cast<int8_t>(byte_of(s.lane[i], b));
      }
      sum.lane[i] += static_cast<uint32_t>(total);
    }
  }
  static Dot begin_dot(I sum, I u, I s) {
    dot(sum, u, s);
    return sum;
  }
  static I end_dot(Dot dot, I) { return dot; }
  static I peak_dot(I sum, I u, I s) { return begin_dot(sum, u, s); }
  template <class T>
  static void keep(T& v) {
    asm volatile("" : "+m"(v));
  }
};

}  // namespace

const PanelPath panel_path_scalar = panel_path_of<Scalar>();

}  // namespace curvq::internal
