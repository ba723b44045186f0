// The kernels of panel.h, written once for vectors V of an instruction set:
//   kLanes                        float32 or int32 in a vector: 8 or 16
//   F, I                          vectors of float32, and of integers
//   kByteRows, kFloatRows, kFloatPanels, kBytePanels   the largest tiles that registers hold
//   load, store, set1, fma, mul, add, sub              of float32
//   quotient(a, b, 1 / b)         a / b, where PrepackedWeight found that it is
//   load_int, set1_int, add_int, mul_int, to_float     of int32
//   scaled(v, scale, shift)       (v - kFloatBase) scale, rounded once; see ByteTile
//   low_nibbles, high_nibbles, lookup(table, bytes), sub_bytes
//   lookup_low, lookup_high(table, codes)              of the low and high nibbles of all bytes
//   kLooksUpFloats, and then
//   lookup_floats<shift>(table, dwords)    of 16 float32 those that four bits of each dword say
//   byte<b>(v), e4m3<b>(v)        byte b of each dword, as signed integer or E4M3, in float32
//   e4m3_as_f16, e8m0_scale, f16_scale, bf16_scale     kLanes scales from memory
//   Dot begin_dot(I sum, I unsigned, I signed), dot(Dot&, I unsigned, I signed), I end_dot(Dot,
//   I sum)
//                                 sums of four products of bytes in each dword; exact from begin to
//                                 end for 16 columns of bytes up to 24 (E2M1) or 32 up to 15
//   peak_dot(I sum, I unsigned, I signed)   the same in as few instructions as go to 32 bits
//   keep(v)                       makes the compiler believe that v is used and may change
// Everything is in an unnamed namespace, so that no file is linked with another's instructions.
#pragma once

#include <cstdint>

#include "kernels/panel.h"

namespace curvq::internal {
namespace {

#define CURVQ_INLINE [[gnu::always_inline]] inline

alignas(16) constexpr uint8_t kSignedE2M1[16] = {0, 1,   2,   3,   4,   6,   8,   12,
                                                 0, 255, 254, 253, 252, 250, 248, 244};
alignas(64) constexpr float kFloatE2M1[16] = {0,     1,  2,  3,  4,  6,  8,  12,
                                              -0.0f, -1, -2, -3, -4, -6, -8, -12};
alignas(64) constexpr float kFloatInt4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
alignas(16) constexpr uint8_t kUnsignedE2M1[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                   12, 11, 10, 9,  8,  6,  4,  0};

template <class V>
struct PanelKernels {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kVectors = kPanelRows / V::kLanes;  // of a panel
  static constexpr int kBytes = 4 * V::kLanes;             // of a vector
  static constexpr int64_t kPrefetch = 2048;               // bytes ahead of a stream from memory
  // With one row: eight float32 sums hide the latency of an addition.
  static constexpr int kFusedFloatPanels = 8 / kVectors, kFusedBytePanels = 4 / kVectors;

  static int64_t first_group(const PanelPart& part) {
    return part.first_segment / part.panels->segments_per_group;
  }
  static int64_t num_groups(const PanelPart& part) {
    return (part.last_segment - 1) / part.panels->segments_per_group + 1 - first_group(part);
  }
  static int64_t line_of(const Panels& panels, int64_t segment) {
    return segment / panels.segments_per_group * panels.lines_per_group +
           segment % panels.segments_per_group * kSegmentLines;
  }
  static int64_t end_line(const PanelPart& part) {
    const Panels& panels = *part.panels;
    const int64_t last = part.last_segment - 1, group = last / panels.segments_per_group;
    const int64_t end = line_of(panels, last) + kSegmentLines;
    const int64_t group_end = (group + 1) * panels.lines_per_group;
    return end < group_end ? end : group_end;
  }
  static const uint8_t* codes_of(const PanelPart& part, int64_t p) {
    const Panels& panels = *part.panels;
    const int64_t line_bytes = panels.element <= PanelElement::kInt4 ? 64 : 128;
    return panels.codes + (part.panel + p) * panels.code_stride +
           line_of(panels, part.first_segment) * line_bytes;
  }

  static const uint8_t* scale_codes_of(const PanelPart& part, int64_t p) {  // of a byte each
    return part.panels->scales + (part.panel + p) * part.panels->scale_stride +
           first_group(part) * kPanelRows;
  }

  // E4M3 codes of positive scales, divided; a float16 with the same bits is 2^-8 times as large.
  struct E4M3Scales {
    F divisor, reciprocal;
    explicit E4M3Scales(float d) : divisor(V::set1(d / 256)), reciprocal(V::set1(256 / d)) {}
    CURVQ_INLINE F operator()(const uint8_t* codes) const {
      return V::quotient(V::e4m3_as_f16(codes), divisor, reciprocal);
    }
  };

  template <class Decode>
  CURVQ_INLINE static void scale_loop(const uint8_t* from, int64_t bytes, int64_t count, F factor,
                                      float* to, Decode&& decode) {
    for (int64_t i = 0; i < count; i += V::kLanes) {
      __builtin_prefetch(from + (count + i) * bytes);  // of the next part
      V::store(to + i, V::mul(decode(from + i * bytes), factor));
    }
  }

  // Scales [groups, 16] of a part's panel p, times factor.
  static void scales_of(const PanelPart& part, int64_t p, float factor, float* to) {
    const Panels& panels = *part.panels;
    const int64_t count = num_groups(part) * kPanelRows, first = first_group(part) * kPanelRows;
    const uint8_t* from = panels.scales + (part.panel + p) * panels.scale_stride;
    const F f = V::set1(factor);
    switch (panels.scale) {
      case PanelScale::kE4M3: {
        const E4M3Scales scales(panels.divisor);
        return scale_loop(from + first, 1, count, f, to, scales);
      }
      case PanelScale::kE8M0:
        return scale_loop(from + first, 1, count, f, to, V::e8m0_scale);
      case PanelScale::kF16:
        return scale_loop(from + 2 * first, 2, count, f, to, V::f16_scale);
      case PanelScale::kBF16:
        return scale_loop(from + 2 * first, 2, count, f, to, V::bf16_scale);
      case PanelScale::kF32:
        return scale_loop(from + 4 * first, 4, count, f, to, [](const uint8_t* s) {
          return V::load(reinterpret_cast<const float*>(s));
        });
    }
  }

  // Zero points [groups, 16] of a part's panel p, plus `offset`.
  static void zeros_of(const PanelPart& part, int64_t p, int offset, int32_t* to) {
    const Panels& panels = *part.panels;
    const int8_t* from =
        panels.zero_points + (part.panel + p) * panels.zero_stride + first_group(part) * kPanelRows;
    for (int64_t i = 0; i < num_groups(part) * kPanelRows; ++i) to[i] = from[i] + offset;
  }

  // What turns the codes of a panel's vector into weights: one group's scales and zero points.
  template <PanelElement kElement>
  struct Decoder {
    static constexpr bool kNibbles = kElement <= PanelElement::kInt4;
    F scale, zero, float_table;
    I zero_bytes, table;

    CURVQ_INLINE void start(const float* scales, const int32_t* zeros) {
      scale = V::load(scales);
      if constexpr (kNibbles && V::kLooksUpFloats) {
        float_table = V::load(kElement == PanelElement::kE2M1 ? kFloatE2M1 : kFloatInt4);
        zero = zeros == nullptr ? V::set1(8) : V::to_float(V::load_int(zeros));
        return;
      }
      if constexpr (kElement == PanelElement::kE2M1) table = V::load_table(kSignedE2M1);
      if constexpr (kElement == PanelElement::kInt4) {
        zero_bytes = zeros == nullptr ? V::set1_int(0x08080808)
                                      : V::mul_int(V::load_int(zeros), V::set1_int(0x01010101));
      }
      if constexpr (kElement == PanelElement::kInt8)
        zero = zeros == nullptr ? V::set1(0) : V::to_float(V::load_int(zeros));
    }

    // The eight columns of a line, dequantized, one after the other.
    template <class Use>
    CURVQ_INLINE void line(const uint8_t* codes, Use&& use) const {
      I low, high;
      if constexpr (kNibbles && V::kLooksUpFloats) {
        const I raw = V::load_int(codes);
        use(0, looked_up<0>(raw)), use(1, looked_up<8>(raw)), use(2, looked_up<16>(raw));
        use(3, looked_up<24>(raw)), use(4, looked_up<4>(raw)), use(5, looked_up<12>(raw));
        use(6, looked_up<20>(raw)), use(7, looked_up<28>(raw));
        return;
      } else if constexpr (kNibbles) {
        const I raw = V::load_int(codes);
        low = V::low_nibbles(raw), high = V::high_nibbles(raw);
        if constexpr (kElement == PanelElement::kE2M1) {
          low = V::lookup(table, low), high = V::lookup(table, high);
        } else {
          low = V::sub_bytes(low, zero_bytes), high = V::sub_bytes(high, zero_bytes);
        }
      } else {
        low = V::load_int(codes), high = V::load_int(codes + 64);
      }
      use(0, value<0>(low)), use(1, value<1>(low)), use(2, value<2>(low)), use(3, value<3>(low));
      use(4, value<0>(high)), use(5, value<1>(high)), use(6, value<2>(high));
      use(7, value<3>(high));
    }

   private:
    template <int kShift>
    CURVQ_INLINE F looked_up(I codes) const {
      F v = V::template lookup_floats<kShift>(float_table, codes);
      if constexpr (kElement == PanelElement::kInt4) v = V::sub(v, zero);
      return V::mul(v, scale);
    }
    template <int kByte>
    CURVQ_INLINE F value(I dwords) const {
      if constexpr (kElement == PanelElement::kE4M3)
        return V::mul(V::template e4m3<kByte>(dwords), scale);
      F v = V::template byte<kByte>(dwords);
      if constexpr (kElement == PanelElement::kInt8) v = V::sub(v, zero);
      return V::mul(v, scale);
    }
  };

  template <PanelElement kElement>
  static void unpack_floats(const PanelPart& part, const FloatWeights& to) {
    const Panels& panels = *part.panels;
    constexpr int64_t kLineBytes = kElement <= PanelElement::kInt4 ? 64 : 128;
    const int64_t begin = line_of(panels, part.first_segment), end = end_line(part);
    alignas(64) float scales[kFloatPartLines * kPanelRows];
    alignas(64) int32_t zeros[kFloatPartLines * kPanelRows];
    const bool asymmetric = panels.zero_points != nullptr;
    for (int64_t p = 0; p < part.count; ++p) {
      scales_of(part, p, kElement == PanelElement::kE2M1 ? 0.5f : 1.0f, scales);
      if (asymmetric) zeros_of(part, p, kElement == PanelElement::kInt4 ? 8 : 0, zeros);
      const uint8_t* codes = codes_of(part, p);
      float* out = to.values + p * to.stride;
      int64_t line = begin;
      for (int64_t g = 0; line < end; ++g) {
        int64_t last = (first_group(part) + g + 1) * panels.lines_per_group;
        if (last > end) last = end;
        Decoder<kElement> decoder[kVectors];
#pragma GCC unroll 12
        for (int v = 0; v < kVectors; ++v) {
          const int64_t at = g * kPanelRows + v * V::kLanes;
          decoder[v].start(scales + at, asymmetric ? zeros + at : nullptr);
        }
        for (; line < last; ++line, codes += kLineBytes, out += kLineColumns * kPanelRows) {
          __builtin_prefetch(codes + kPrefetch);
#pragma GCC unroll 12
          for (int v = 0; v < kVectors; ++v) {
            decoder[v].line(codes + v * kBytes,
                            [&](int k, F w) { V::store(out + k * kPanelRows + v * V::kLanes, w); });
          }
        }
      }
    }
  }

  static void unpack_floats_of(const PanelPart& part, const FloatWeights& to) {
    switch (part.panels->element) {
      case PanelElement::kE2M1:
        return unpack_floats<PanelElement::kE2M1>(part, to);
      case PanelElement::kInt4:
        return unpack_floats<PanelElement::kInt4>(part, to);
      case PanelElement::kInt8:
        return unpack_floats<PanelElement::kInt8>(part, to);
      case PanelElement::kE4M3:
        return unpack_floats<PanelElement::kE4M3>(part, to);
    }
  }

  CURVQ_INLINE static void put(F sum, bool accumulate, float* out) {
    V::store(out, accumulate ? V::add(V::load(out), sum) : sum);
  }

  template <int kRows, int kPanels>
  static void float_tile(int64_t columns, const float* x, const float* w, int64_t stride,
                         const PanelOut& out, float* to) {
    constexpr int kSums = kPanels * kVectors;
    F sums[kRows][kSums];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kSums; ++v) sums[i][v] = V::set1(0);
    }
    for (int64_t k = 0; k < columns; ++k, x += kRows, w += kPanelRows) {
      F ws[kSums];
#pragma GCC unroll 8
      for (int v = 0; v < kSums; ++v)
        ws[v] = V::load(w + v / kVectors * stride + v % kVectors * V::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const F xs = V::set1(x[i]);
#pragma GCC unroll 8
        for (int v = 0; v < kSums; ++v) sums[i][v] = V::fma(ws[v], xs, sums[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kSums; ++v)
        put(sums[i][v], out.accumulate, to + i * out.stride + v * V::kLanes);
    }
  }

  template <int kRows>
  static void float_tiles(const PanelPart& part, const FloatTile& tile, const FloatWeights& w,
                          const PanelOut& out) {
    if constexpr (kRows > 1) {
      if (tile.rows < kRows) return float_tiles<kRows - 1>(part, tile, w, out);
    }
    const int64_t columns =
        (end_line(part) - line_of(*part.panels, part.first_segment)) * kLineColumns;
    int64_t p = 0;
    for (; p + V::kFloatPanels <= part.count; p += V::kFloatPanels)
      float_tile<kRows, V::kFloatPanels>(columns, tile.x, w.values + p * w.stride, w.stride, out,
                                         out.out + p * kPanelRows);
    for (; p < part.count; ++p)
      float_tile<kRows, 1>(columns, tile.x, w.values + p * w.stride, w.stride, out,
                           out.out + p * kPanelRows);
  }

  // kRows rows times kPanels panels, each weight unpacked in registers.
  template <PanelElement kElement, int kRows, int kPanels>
  static void fused_float_tile(const PanelPart& part, int64_t panel, const float* x,
                               const PanelOut& out) {
    const Panels& panels = *part.panels;
    const int64_t begin = line_of(panels, part.first_segment), end = end_line(part);
    constexpr int kSums = kPanels * kVectors;
    constexpr int64_t kScales = kFloatPartLines * kPanelRows;
    alignas(64) float scales[kPanels * kScales];
    alignas(64) int32_t zeros[kPanels * kScales];
    const bool asymmetric = panels.zero_points != nullptr;
    const uint8_t* codes = codes_of(part, panel);
    for (int p = 0; p < kPanels; ++p) {
      scales_of(part, panel + p, kElement == PanelElement::kE2M1 ? 0.5f : 1.0f,
                scales + p * kScales);
      if (asymmetric) zeros_of(part, panel + p, 8, zeros + p * kScales);
    }
    F sums[kRows][kSums];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 12
      for (int v = 0; v < kSums; ++v) sums[i][v] = V::set1(0);
    }
    int64_t line = begin;
    for (int64_t g = 0; line < end; ++g) {
      int64_t last = (first_group(part) + g + 1) * panels.lines_per_group;
      if (last > end) last = end;
      for (; line < last; ++line, codes += 64, x += kLineColumns * kRows) {
#pragma GCC unroll 8
        for (int v = 0; v < kSums; ++v) {
          const int p = v / kVectors;
          const int64_t at = p * kScales + g * kPanelRows + v % kVectors * V::kLanes;
          const uint8_t* from = codes + p * panels.code_stride + v % kVectors * kBytes;
          if (v % kVectors == 0) __builtin_prefetch(from + kPrefetch);
          Decoder<kElement> decoder;
          decoder.start(scales + at, asymmetric ? zeros + at : nullptr);
          decoder.line(from, [&](int k, F w) {
#pragma GCC unroll 12
            for (int i = 0; i < kRows; ++i)
              sums[i][v] = V::fma(w, V::set1(x[k * kRows + i]), sums[i][v]);
          });
        }
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 12
      for (int v = 0; v < kSums; ++v)
        put(sums[i][v], out.accumulate,
            out.out + i * out.stride + panel * kPanelRows + v * V::kLanes);
    }
  }

  template <PanelElement kElement, int kRows>
  static void fused_float_tiles(const PanelPart& part, const FloatTile& tile, const PanelOut& out) {
    constexpr int kPanels = kFusedFloatPanels;
    int64_t p = 0;
    for (; p + kPanels <= part.count; p += kPanels)
      fused_float_tile<kElement, kRows, kPanels>(part, p, tile.x, out);
    for (; p < part.count; ++p) fused_float_tile<kElement, kRows, 1>(part, p, tile.x, out);
  }

  static void fused_floats(const PanelPart& part, const FloatTile& tile, const PanelOut& out) {
    if (part.panels->element == PanelElement::kE2M1)
      return fused_float_tiles<PanelElement::kE2M1, 1>(part, tile, out);
    fused_float_tiles<PanelElement::kInt4, 1>(part, tile, out);
  }
};

}  // namespace
}  // namespace curvq::internal
