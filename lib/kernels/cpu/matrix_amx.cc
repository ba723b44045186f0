#if defined(__x86_64__)
#include "kernels/cpu/panel_avx512_vectors.h"
#include "kernels/matrix_unit.h"
#include "kernels/panel_kernels.h"

namespace curvq::internal {
namespace {

using Kernels = PanelKernels<Avx512Vectors>;
constexpr int kTileRowBytes = 64;

// Tiles 0 to 3 are sums, 4 and 5 inputs, 6 and 7 weights; all of 16 rows of 64 bytes.
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void begin() {
  alignas(64) TileConfig config;
  for (int i = 0; i < 8; ++i) config.row_bytes[i] = kTileRowBytes, config.rows[i] = kMatrixRows;
  asm volatile("" ::"r"(&config) : "memory");  // GCC's intrinsic names but its first bytes
  _tile_loadconfig(&config);
}

void end() { _tile_release(); }

// Two columns of 16 rows: bfloat16 of `even` in the low, of `odd` in the high halves.
template <bool kExact>
CURVQ_INLINE __m512i pair(__m512 even, __m512 odd) {
  if constexpr (kExact) {
    const __m512i low = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(even), 16);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    return _mm512_or_si512(low, _mm512_and_si512(_mm512_castps_si512(odd), high));
  } else {
    alignas(64) static constexpr uint16_t kTurns[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(kTurns),
                                    (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  }
}

template <PanelElement kElement, bool kExact>
void unpack_as(const MatrixPart& part, uint16_t* to) {
  Panels panels = *part.panels;
  panels.divisor = 1;
  constexpr int64_t kLineBytes = kElement <= PanelElement::kInt4 ? 64 : 128;
  const int64_t first_group = part.line / panels.lines_per_group;
  const int64_t end_group = (part.end_line - 1) / panels.lines_per_group + 1;
  const PanelPart groups{&panels, part.panel, part.count, first_group * panels.segments_per_group,
                         end_group * panels.segments_per_group};
  const bool asymmetric = panels.zero_points != nullptr;
  alignas(64) float scales[kMatrixPartLines * kPanelRows];
  alignas(64) int32_t zeros[kMatrixPartLines * kPanelRows];
  for (int64_t p = 0; p < part.count; ++p, to += kMatrixPanelValues) {
    Kernels::scales_of(groups, p, kElement == PanelElement::kE2M1 ? 0.5f : 1.0f, scales);
    if (asymmetric) Kernels::zeros_of(groups, p, kElement == PanelElement::kInt4 ? 8 : 0, zeros);
    const uint8_t* codes =
        panels.codes + (part.panel + p) * panels.code_stride + part.line * kLineBytes;
    uint16_t* out = to;
    int64_t line = part.line;
    for (int64_t g = 0; line < part.end_line; ++g) {
      int64_t last = (first_group + g + 1) * panels.lines_per_group;
      if (last > part.end_line) last = part.end_line;
      Kernels::Decoder<kElement> decoder;
      decoder.start(scales + g * kPanelRows, asymmetric ? zeros + g * kPanelRows : nullptr);
      for (; line < last; ++line, codes += kLineBytes, out += kLineColumns * kPanelRows) {
        __builtin_prefetch(codes + Kernels::kPrefetch);
        __m512 w[kLineColumns];
        decoder.line(codes, [&](int k, __m512 value) { w[k] = value; });
#pragma GCC unroll 4
        for (int k = 0; k < kLineColumns; k += 2)
          Avx512Vectors::store_int(out + k * kPanelRows, pair<kExact>(w[k], w[k + 1]));
      }
    }
    for (; line % kMatrixLines != 0; ++line, out += kLineColumns * kPanelRows) {
      for (int k = 0; k < kLineColumns; k += 2)
        Avx512Vectors::store_int(out + k * kPanelRows, _mm512_setzero_si512());
    }
  }
}

void unpack(const MatrixPart& part, uint16_t* to) {
  const bool coded =
      part.panels->scale == PanelScale::kE4M3 || part.panels->scale == PanelScale::kE8M0;
  switch (part.panels->element) {
    case PanelElement::kE2M1:
      return coded ? unpack_as<PanelElement::kE2M1, true>(part, to)
                   : unpack_as<PanelElement::kE2M1, false>(part, to);
    case PanelElement::kInt4:
      return unpack_as<PanelElement::kInt4, false>(part, to);
    case PanelElement::kInt8:
      return unpack_as<PanelElement::kInt8, false>(part, to);
    case PanelElement::kE4M3:
      return unpack_as<PanelElement::kE4M3, false>(part, to);
  }
}

// kRowTiles (1, 2) times kPanelTiles (1, 2) tiles of sums.
template <int kRowTiles, int kPanelTiles>
void multiply_tiles(const MatrixProduct& product, const uint16_t* x, const uint16_t* w,
                    float* sums) {
  const int64_t bytes = product.stride * 4;
  const int64_t row_tile = product.column_tiles * kMatrixTileValues;
  float* below = sums + kMatrixRows * product.stride;
  _tile_loadd(0, sums, bytes);
  if constexpr (kPanelTiles > 1) _tile_loadd(1, sums + kPanelRows, bytes);
  if constexpr (kRowTiles > 1) _tile_loadd(2, below, bytes);
  if constexpr (kRowTiles > 1 && kPanelTiles > 1) _tile_loadd(3, below + kPanelRows, bytes);
  for (int64_t t = 0; t < product.column_tiles; ++t) {
    _tile_loadd(6, w, kTileRowBytes);
    _tile_loadd(4, x, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kPanelTiles > 1) {
      _tile_loadd(7, w + kMatrixPanelValues, kTileRowBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRowTiles > 1) {
      _tile_loadd(5, x + row_tile, kTileRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kPanelTiles > 1) _tile_dpbf16ps(3, 5, 7);
    }
    x += kMatrixTileValues, w += kMatrixTileValues;
  }
  _tile_stored(0, sums, bytes);
  if constexpr (kPanelTiles > 1) _tile_stored(1, sums + kPanelRows, bytes);
  if constexpr (kRowTiles > 1) _tile_stored(2, below, bytes);
  if constexpr (kRowTiles > 1 && kPanelTiles > 1) _tile_stored(3, below + kPanelRows, bytes);
}

void multiply(const MatrixProduct& product) {
  const bool both = product.count == kMatrixPanels;
  int64_t i = 0;
  const auto rows = [&]<int kRowTiles>() {
    const uint16_t* x = product.x + i * product.column_tiles * kMatrixTileValues;
    float* sums = product.sums + i * kMatrixRows * product.stride;
    both ? multiply_tiles<kRowTiles, 2>(product, x, product.w, sums)
         : multiply_tiles<kRowTiles, 1>(product, x, product.w, sums);
    i += kRowTiles;
  };
  while (i + 2 <= product.row_tiles) rows.template operator()<2>();
  if (i < product.row_tiles) rows.template operator()<1>();
}

// Of ones: with zeros these processors run faster than with anything else.
int64_t peak(int64_t repeats) {
  alignas(64) uint16_t ones[kMatrixTileValues];
  for (uint16_t& one : ones) one = 0x3f80;
  asm volatile("" ::"r"(ones) : "memory");
  begin();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, kTileRowBytes);
  _tile_loadd(5, ones, kTileRowBytes);
  _tile_loadd(6, ones, kTileRowBytes);
  _tile_loadd(7, ones, kTileRowBytes);
  for (int64_t i = 0; i < repeats; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  end();
  constexpr int64_t kProducts = 4;
  return repeats * kProducts * kMatrixTileValues * kPanelRows * 2;
}

}  // namespace

const MatrixUnit matrix_unit_amx = {begin, end, unpack, multiply, peak};

}  // namespace curvq::internal
#endif
