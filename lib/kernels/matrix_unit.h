// Products in bfloat16 on the matrix unit of a CPU, from the panels of panel.h.
//
// Inputs are cut into parts of 512 columns, each [rows / 16, columns / 32, 16, 32] with zeros
// beyond the end, so that a part lies in one piece and spreads over all sets of a cache; unpacked
// weights are [panels, columns / 32, 16 pairs of columns, 16 rows, 2]. As in panel.h, plain data
// only.
#pragma once

#include <cstdint>

#include "kernels/panel.h"

namespace curvq::internal {

inline constexpr int64_t kMatrixRows = 16, kMatrixLines = 4;  // of a tile; 32 columns
inline constexpr int64_t kMatrixTileValues = kMatrixRows * kMatrixLines * kLineColumns;
// Lines of a part and panels at most, unpacked together: half of a first-level cache.
inline constexpr int64_t kMatrixPartLines = 64, kMatrixPanels = 2;
inline constexpr int64_t kMatrixPartTiles = kMatrixPartLines / kMatrixLines;
inline constexpr int64_t kMatrixPanelValues = kMatrixPartLines * kLineColumns * kPanelRows;

// Weights of `count` panels, lines [line, end_line).
struct MatrixPart {
  const Panels* panels;
  int64_t panel, count;
  int64_t line, end_line;
};

// Sums [16 row_tiles, 16 count] += inputs times weights of a part; `stride` floats from one row of
// sums to the next.
struct MatrixProduct {
  const uint16_t* x;
  const uint16_t* w;
  int64_t row_tiles, column_tiles, count;
  float* sums;
  int64_t stride;
};

struct MatrixUnit {
  // Around calls of multiply() by one thread.
  void (*begin)();
  void (*end)();
  // Dequantized weights without the divisor of E4M3 scales, rounded to bfloat16 (those of E2M1 with
  // scales of 8 bits are exact), [count, kMatrixPanelValues].
  void (*unpack)(const MatrixPart&, uint16_t* to);
  void (*multiply)(const MatrixProduct&);
  int64_t (*peak)(int64_t repeats);  // as those of PanelPath
};

#if defined(__x86_64__)
// AMX-TILE and AMX-BF16, and AVX-512 F, BW, VL, DQ and BF16.
extern const MatrixUnit matrix_unit_amx;
#endif

}  // namespace curvq::internal
