// Packed weights as the kernels of linear.h read them, and those kernels, one set for each
// instruction set.
//
// Sixteen weight rows are a panel. Along a row, each group is cut into lines of eight columns (its
// last line is filled up with columns that the inputs hold zeros for). In memory a panel is
//   codes   for each line 64 bytes (4 bits): byte b of the dword at 4 r holds, of row r, column b
//   in
//           its low and column 4 + b in its high nibble; or 128 bytes (8 bits): twice 64, column b
//           and then column 4 + b in byte b of row r's dword. Integers have the sign bit flipped
//           (8 bits: two's complement) or not (4 bits: code = value + 8).
//   scales  [groups, 16] as stored: E4M3, E8M0, float16, bfloat16 or float32
//   zero points  [groups, 16] int8
// A segment is the part of a group that shares a scale of integer inputs: four lines, or what is
// left of the group.
//
// As in integer_tile.h, files for newer machines share no inline functions with others: this
// header declares plain data only.
#pragma once

#include <cstdint>

namespace curvq::internal {

inline constexpr int64_t kPanelRows = 16, kLineColumns = 8, kSegmentLines = 4;
// Lines of a part at most; sums of a part start from zero.
inline constexpr int64_t kFloatPartLines = 32, kBytePartLines = 64;

enum class PanelElement : uint8_t { kE2M1, kInt4, kInt8, kE4M3 };
enum class PanelScale : uint8_t { kE4M3, kE8M0, kF16, kBF16, kF32 };

struct Panels {
  PanelElement element;
  PanelScale scale;
  float divisor;  // of E4M3 scales
  const uint8_t* codes;
  const uint8_t* scales;
  const int8_t* zero_points;                       // or null
  int64_t code_stride, scale_stride, zero_stride;  // bytes from panel to panel
  int64_t lines_per_group, segments_per_group;
};

// Some neighbouring panels, and segments [first_segment, last_segment) of them, whole groups or
// segments of one group.
struct PanelPart {
  const Panels* panels;
  int64_t panel, count;
  int64_t first_segment, last_segment;
};

// Sums that a kernel adds up for rows x 16 count outputs, from zero, in the order of the columns;
// stored to (or, with `accumulate`, added to) out.
struct PanelOut {
  float* out;
  int64_t stride;
  bool accumulate;
};

// A tile of inputs, from the first column of a part on: [columns, rows] float32.
struct FloatTile {
  const float* x;
  int64_t rows;
};

// An integer i below 2^22 added to the bits of this float32, 1.5 * 2^23, is the float32 that is i
// larger: sums of bytes begin here and need no conversion.
inline constexpr int32_t kFloatBase = 0x4b400000;
inline constexpr float kFloatBaseValue = 12582912.0f;

// The same as signed bytes: words of four columns [words, rows]; and for each segment and row
//   scales  of 22 bits, so that shifts are exact
//   shifts  -kFloatBaseValue times the scale
//   sums    of the bytes, times minus the panels' offset (12 for E2M1 doubled, 8 for symmetric
//           INT4), from kFloatBase on; with zero points minus the sum
struct ByteTile {
  const int32_t* x;
  const float* scales;
  const float* shifts;
  const int32_t* sums;
  int64_t rows;
};

// Weights of a part, unpacked; panel p begins at p * (stride of the buffer).
struct FloatWeights {  // dequantized, [columns, 16]
  float* values;
  int64_t stride;
};
struct ByteWeights {
  uint8_t* values;  // codes as unsigned integers (E2M1: twice the value plus 12), [words, 16, 4]
  float* scales;    // [groups, 16], for E2M1 halved
  int32_t* zeros;   // [groups, 16] zero points + 8; unused where there are none
  int64_t stride, scale_stride;
};

// Tiles hold at most so many rows, and as many panels together; up to the fused number of rows,
// unpacking in registers, for each tile anew, is faster. Of bytes, up to kFewByteRows rows take
// fused_byte_panels together, more take byte_panels.
inline constexpr int64_t kFewByteRows = 2;
struct PanelPath {
  int64_t float_rows, byte_rows, fused_float_rows, fused_byte_rows;
  int64_t float_panels, byte_panels, fused_float_panels, fused_byte_panels;
  void (*unpack_floats)(const PanelPart&, const FloatWeights&);
  void (*multiply_floats)(const PanelPart&, const FloatTile&, const FloatWeights&, const PanelOut&);
  void (*fused_floats)(const PanelPart&, const FloatTile&, const PanelOut&);  // 4 bits only
  void (*unpack_bytes)(const PanelPart&, const ByteWeights&);
  void (*multiply_bytes)(const PanelPart&, const ByteTile&, const ByteWeights&, const PanelOut&);
  void (*fused_bytes)(const PanelPart&, const ByteTile&, const PanelOut&);
  // Only the arithmetic of the kernels, repeated; the number of operations (a product and its
  // addition are two).
  int64_t (*peak_floats)(int64_t repeats);
  int64_t (*peak_bytes)(int64_t repeats);
};

extern const PanelPath panel_path_scalar;
#if defined(__x86_64__)
extern const PanelPath panel_path_avx2;         // needs AVX2, FMA, F16C
extern const PanelPath panel_path_avx_vnni;     // and AVX-VNNI
extern const PanelPath panel_path_avx512;       // needs AVX-512 F, BW, VL, DQ
extern const PanelPath panel_path_avx512_vnni;  // and AVX-512 VNNI
extern const PanelPath panel_path_avx512_vbmi;  // and AVX-512 VBMI
#endif

}  // namespace curvq::internal
