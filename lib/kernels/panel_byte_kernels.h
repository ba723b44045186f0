// The kernels of panel.h on inputs rounded to bytes; see panel_kernels.h.
#pragma once

#include "kernels/panel_kernels.h"

namespace curvq::internal {
namespace {

template <class V>
struct PanelByteKernels : PanelKernels<V> {
  using Base = PanelKernels<V>;
  using typename Base::F;
  using typename Base::I;
  using Dot = typename V::Dot;
  using Base::kBytes;
  using Base::kVectors;
  static constexpr int64_t kWordBytes = 4 * kPanelRows;  // of a word of four columns

  template <PanelElement kElement>
  CURVQ_INLINE static void unsigned_line(const uint8_t* codes, I table, I& low, I& high) {
    const I raw = V::load_int(codes);
    if constexpr (kElement == PanelElement::kE2M1) {
      low = V::lookup_low(table, raw), high = V::lookup_high(table, raw);
    } else {
      low = V::low_nibbles(raw), high = V::high_nibbles(raw);
    }
  }

  // Where a tile's weights come from: unpacked before, or the packed codes.
  struct Unpacked {
    const uint8_t* w;
    int64_t stride;
    CURVQ_INLINE void line(int v, I& low, I& high) const {
      const uint8_t* from = w + v / kVectors * stride + v % kVectors * kBytes;
      low = V::load_int(from), high = V::load_int(from + kWordBytes);
    }
    CURVQ_INLINE void next() { w += 2 * kWordBytes; }
  };
  template <PanelElement kElement>
  struct Packed {
    const uint8_t* codes;
    int64_t stride;
    I table;
    CURVQ_INLINE void line(int v, I& low, I& high) const {
      const uint8_t* from = codes + v / kVectors * stride + v % kVectors * kBytes;
      if (v % kVectors == 0) __builtin_prefetch(from + Base::kPrefetch);
      unsigned_line<kElement>(from, table, low, high);
    }
    CURVQ_INLINE void next() { codes += kWordBytes; }
  };

  template <PanelElement kElement>
  static void unpack_bytes(const PanelPart& part, const ByteWeights& to) {
    const Panels& panels = *part.panels;
    const int64_t lines = Base::end_line(part) - Base::line_of(panels, part.first_segment);
    const I table = V::load_table(kUnsignedE2M1);
    for (int64_t p = 0; p < part.count; ++p) {
      Base::scales_of(part, p, kElement == PanelElement::kE2M1 ? 0.5f : 1.0f,
                      to.scales + p * to.scale_stride);
      if (panels.zero_points != nullptr) Base::zeros_of(part, p, 8, to.zeros + p * to.scale_stride);
      const uint8_t* codes = Base::codes_of(part, p);
      uint8_t* out = to.values + p * to.stride;
      for (int64_t line = 0; line < lines; ++line, codes += kWordBytes, out += 2 * kWordBytes) {
        __builtin_prefetch(codes + Base::kPrefetch);
#pragma GCC unroll 12
        for (int v = 0; v < kVectors; ++v) {
          I low, high;
          unsigned_line<kElement>(codes + v * kBytes, table, low, high);
          V::store_int(out + v * kBytes, low);
          V::store_int(out + kWordBytes + v * kBytes, high);
        }
      }
    }
  }

  static void unpack_bytes_of(const PanelPart& part, const ByteWeights& to) {
    if (part.panels->element == PanelElement::kE2M1)
      return unpack_bytes<PanelElement::kE2M1>(part, to);
    unpack_bytes<PanelElement::kInt4>(part, to);
  }

  // Where its scales come from: decoded before, or bytes as stored. Decoding a part's scales at
  // once would let the memory rest for a quarter of the time that a part of NVFP4 takes.
  struct Decoded {
    const float* at;
    int64_t stride;
    CURVQ_INLINE F scale(int v) const {
      return V::load(at + v / kVectors * stride + v % kVectors * V::kLanes);
    }
    CURVQ_INLINE void next() { at += kPanelRows; }
  };
  template <class Decode>
  struct Stored {
    const uint8_t* at;
    int64_t stride;
    Decode decode;
    Stored(const PanelPart& part, int64_t p, Decode with)
        : at(Base::scale_codes_of(part, p)), stride(part.panels->scale_stride), decode(with) {}
    CURVQ_INLINE F scale(int v) const {
      const uint8_t* from = at + v / kVectors * stride + v % kVectors * V::kLanes;
      if (v % kVectors == 0) __builtin_prefetch(from + Base::kPrefetch / 8);
      return decode(from);
    }
    CURVQ_INLINE void next() { at += kPanelRows; }
  };

  // kRows rows times kSums vectors of columns. kLines: lines of every segment, 0 where they differ.
  template <PanelElement kElement, int kLines, bool kZeros, int kRows, int kSums, class Source,
            class Scales>
  static void byte_tile(const PanelPart& part, const ByteTile& tile, Source source, Scales scales,
                        const int32_t* zeros, int64_t zero_stride, const PanelOut& out, float* to) {
    // Lines that a Dot may sum.
    constexpr int64_t kDotLines = kElement == PanelElement::kE2M1 ? 2 : 4;
    const Panels& panels = *part.panels;
    const int32_t* x = tile.x;
    F sums[kRows][kSums];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 12
      for (int v = 0; v < kSums; ++v) sums[i][v] = V::set1(0);
    }
    int64_t piece = part.first_segment % panels.segments_per_group;
    const int64_t segments = part.last_segment - part.first_segment;
    for (int64_t s = 0; s < segments; ++s) {
      int64_t rest = panels.lines_per_group - piece * kSegmentLines;
      if (rest > kSegmentLines) rest = kSegmentLines;
      const int64_t lines = kLines > 0 ? kLines : rest;
      I whole[kRows][kSums];
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const I offset = V::set1_int(tile.sums[s * kRows + i]);
#pragma GCC unroll 12
        for (int v = 0; v < kSums; ++v) {
          whole[i][v] = offset;
          if constexpr (kZeros) {
            const I zero =
                V::load_int(zeros + v / kVectors * zero_stride + v % kVectors * V::kLanes);
            whole[i][v] = V::add_int(V::mul_int(offset, zero), V::set1_int(kFloatBase));
          }
        }
      }
      for (int64_t first = 0; first < lines; first += kDotLines) {
        Dot dots[kRows][kSums];
        int64_t count = lines - first;
        if (kLines > 0 || count > kDotLines) count = kDotLines;
#pragma GCC unroll 4
        for (int64_t line = 0; line < count; ++line, x += 2 * kRows, source.next()) {
          I words[2][kSums];
#pragma GCC unroll 4
          for (int v = 0; v < kSums; ++v) source.line(v, words[0][v], words[1][v]);
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
            for (int i = 0; i < kRows; ++i) {
              const I word = V::set1_int(x[half * kRows + i]);
#pragma GCC unroll 4
              for (int v = 0; v < kSums; ++v) {
                if (line == 0 && half == 0) {
                  dots[i][v] = V::begin_dot(whole[i][v], words[0][v], word);
                } else {
                  V::dot(dots[i][v], words[half][v], word);
                }
              }
            }
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
          for (int v = 0; v < kSums; ++v) whole[i][v] = V::end_dot(dots[i][v], whole[i][v]);
        }
      }
      F scale[kSums];
#pragma GCC unroll 4
      for (int v = 0; v < kSums; ++v) scale[v] = scales.scale(v);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const F x_scale = V::set1(tile.scales[s * kRows + i]);
        const F x_shift = V::set1(tile.shifts[s * kRows + i]);
#pragma GCC unroll 4
        for (int v = 0; v < kSums; ++v) {
          sums[i][v] = V::fma(V::scaled(whole[i][v], x_scale, x_shift), scale[v], sums[i][v]);
        }
      }
      if (++piece == panels.segments_per_group) {
        piece = 0;
        scales.next();
        if constexpr (kZeros) zeros += kPanelRows;
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 12
      for (int v = 0; v < kSums; ++v)
        Base::put(sums[i][v], out.accumulate, to + i * out.stride + v * V::kLanes);
    }
  }

  template <PanelElement kElement, int kLines, bool kZeros, int kRows>
  static void byte_tiles(const PanelPart& part, const ByteTile& tile, const ByteWeights& w,
                         const PanelOut& out) {
    if constexpr (kRows > 1) {
      if (tile.rows < kRows)
        return byte_tiles<kElement, kLines, kZeros, kRows - 1>(part, tile, w, out);
    }
    int64_t p = 0;
    const auto multiply = [&]<int kPanels>() {
      byte_tile<kElement, kLines, kZeros, kRows, kPanels * kVectors>(
          part, tile, Unpacked{w.values + p * w.stride, w.stride},
          Decoded{w.scales + p * w.scale_stride, w.scale_stride}, w.zeros + p * w.scale_stride,
          w.scale_stride, out, out.out + p * kPanelRows);
      p += kPanels;
    };
    while (p + V::kBytePanels <= part.count) multiply.template operator()<V::kBytePanels>();
    while (p < part.count) multiply.template operator()<1>();
  }

  template <PanelElement kElement, int kLines, bool kZeros, int kRows>
  static void fused_tiles(const PanelPart& part, const ByteTile& tile, const PanelOut& out) {
    if constexpr (kRows > 1) {
      if (tile.rows < kRows)
        return fused_tiles<kElement, kLines, kZeros, kRows - 1>(part, tile, out);
    }
    constexpr int64_t kStride = kBytePartLines * kPanelRows;
    int64_t p = 0;
    constexpr float kFactor = kElement == PanelElement::kE2M1 ? 0.5f : 1.0f;
    const PanelScale form = part.panels->scale;
    const auto multiply = [&]<int kPanels>() {
      const Packed<kElement> source{Base::codes_of(part, p), part.panels->code_stride,
                                    V::load_table(kUnsignedE2M1)};
      float* to = out.out + p * kPanelRows;
      const auto tile_of = [&](auto scales, const int32_t* zeros) {
        byte_tile<kElement, kLines, kZeros, kRows, kPanels * kVectors>(part, tile, source, scales,
                                                                       zeros, kStride, out, to);
        p += kPanels;
      };
      if constexpr (kElement == PanelElement::kE2M1 && kRows <= kFewByteRows) {
        if (kLines == 2 && form == PanelScale::kE4M3) {
          const typename Base::E4M3Scales decode(part.panels->divisor / kFactor);
          return tile_of(Stored(part, p, decode), nullptr);
        }
        if (kLines == 4 && form == PanelScale::kE8M0) {
          const F factor = V::set1(kFactor);
          const auto decode = [factor](const uint8_t* s) {
            return V::mul(V::e8m0_scale(s), factor);
          };
          return tile_of(Stored(part, p, decode), nullptr);
        }
      }
      alignas(64) float scales[kPanels * kStride];
      alignas(64) int32_t zeros[kZeros ? kPanels * kStride : 1];
#pragma GCC unroll 12
      for (int j = 0; j < kPanels; ++j) {
        Base::scales_of(part, p + j, kFactor, scales + j * kStride);
        if constexpr (kZeros) Base::zeros_of(part, p + j, 8, zeros + j * kStride);
      }
      tile_of(Decoded{scales, kStride}, zeros);
    };
    constexpr int kPanels = kRows <= kFewByteRows ? Base::kFusedBytePanels : V::kBytePanels;
    while (p + kPanels <= part.count) multiply.template operator()<kPanels>();
    while (p < part.count) multiply.template operator()<1>();
  }

  // Calls fn<element, lines, zeros> for the kind of weights.
  template <class Fn>
  static void with_kind(const Panels& panels, Fn&& fn) {
    constexpr auto kE2M1 = PanelElement::kE2M1, kInt4 = PanelElement::kInt4;
    const bool whole = panels.lines_per_group % kSegmentLines == 0;
    if (panels.element == kE2M1) {
      if (panels.lines_per_group == 2) return fn.template operator()<kE2M1, 2, false>();
      if (whole) return fn.template operator()<kE2M1, 4, false>();
      return fn.template operator()<kE2M1, 0, false>();
    }
    if (panels.zero_points != nullptr)
      return whole ? fn.template operator()<kInt4, 4, true>()
                   : fn.template operator()<kInt4, 0, true>();
    return whole ? fn.template operator()<kInt4, 4, false>()
                 : fn.template operator()<kInt4, 0, false>();
  }

  static void multiply_bytes(const PanelPart& part, const ByteTile& tile, const ByteWeights& w,
                             const PanelOut& out) {
    with_kind(*part.panels, [&]<PanelElement kElement, int kLines, bool kZeros>() {
      byte_tiles<kElement, kLines, kZeros, V::kByteRows>(part, tile, w, out);
    });
  }

  static void fused_bytes(const PanelPart& part, const ByteTile& tile, const PanelOut& out) {
    with_kind(*part.panels, [&]<PanelElement kElement, int kLines, bool kZeros>() {
      fused_tiles<kElement, kLines, kZeros, V::kByteRows>(part, tile, out);
    });
  }
};

constexpr int kPeakSums = 12;  // hide the latency of an addition, and fit into registers

template <class V>
int64_t peak_floats(int64_t repeats) {
  typename V::F sums[kPeakSums], x = V::set1(0.5f), w = V::set1(0.25f);
#pragma GCC unroll 12
  for (int i = 0; i < kPeakSums; ++i) {
    sums[i] = V::set1(0);
    V::keep(sums[i]);  // lest all of them are one
  }
  for (int64_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kPeakSums; ++i) sums[i] = V::fma(x, w, sums[i]);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kPeakSums; ++i) V::keep(sums[i]);
  return repeats * kPeakSums * V::kLanes * 2;
}

template <class V>
int64_t peak_bytes(int64_t repeats) {
  typename V::I sums[kPeakSums], x = V::set1_int(0x01010101), w = V::set1_int(0x02020202);
#pragma GCC unroll 12
  for (int i = 0; i < kPeakSums; ++i) sums[i] = V::set1_int(0);
  for (int64_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kPeakSums; ++i) {
      V::keep(w);
      sums[i] = V::peak_dot(sums[i], w, x);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kPeakSums; ++i) V::keep(sums[i]);
  return repeats * kPeakSums * V::kLanes * 4 * 2;
}

template <class V>
constexpr PanelPath panel_path_of() {
  using K = PanelByteKernels<V>;
  return {.float_rows = V::kFloatRows,
          .byte_rows = V::kByteRows,
          .fused_float_rows = 1,
          .fused_byte_rows = 2 * V::kByteRows,
          .float_panels = V::kFloatPanels,
          .byte_panels = V::kBytePanels,
          .fused_float_panels = K::kFusedFloatPanels,
          .fused_byte_panels = K::kFusedBytePanels,
          .unpack_floats = K::unpack_floats_of,
          .multiply_floats = K::template float_tiles<V::kFloatRows>,
          .fused_floats = K::fused_floats,
          .unpack_bytes = K::unpack_bytes_of,
          .multiply_bytes = K::multiply_bytes,
          .fused_bytes = K::fused_bytes,
          .peak_floats = peak_floats<V>,
          .peak_bytes = peak_bytes<V>};
}

}  // namespace
}  // namespace curvq::internal
