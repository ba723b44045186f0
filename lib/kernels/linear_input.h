// What LinearInput holds.
#pragma once

#include <algorithm>
#include <memory>

#include "curvq/kernels/linear.h"
#include "kernels/matrix_unit.h"
#include "kernels/panel.h"
#include "kernels/prepacked_weight.h"

namespace curvq::internal {

// Inputs in tiles of `tile_rows` rows (the last may have fewer). As integers of 15 bits each row of
// x is two: 128 times the one plus the other. In bfloat16 for a matrix unit: as matrix_unit.h says.
struct LinearInputParts {
  const PanelPath* path;
  const MatrixUnit* matrix = nullptr;  // null: floats or integers
  InputRounding rounding;
  PanelElement element;
  bool symmetric;
  int64_t cols, group_columns;  // of the weights
  int64_t rows;                 // of x
  int64_t tile_rows;
  int64_t columns, segments;  // of a row, columns with those that fill up lines
  std::unique_ptr<float[]> floats;
  std::unique_ptr<int32_t[]> words, sums;
  std::unique_ptr<float[]> scales, shifts;
  PanelBytes tiles;  // bfloat16

  bool integer() const { return rounding == InputRounding::kA8 || rounding == InputRounding::kA15; }
  int64_t rows_per_row() const { return rounding == InputRounding::kA15 ? 2 : 1; }
  int64_t kernel_rows() const { return rows * rows_per_row(); }
  bool fits(const PrepackedWeight& weight) const;

  // The tile that starts at `row`, a multiple of tile_rows, from a line or segment on.
  FloatTile float_tile(int64_t row, int64_t line) const {
    const int64_t count = tile_size(row);
    return {floats.get() + row * columns + line * kLineColumns * count, count};
  }
  ByteTile byte_tile(int64_t row, int64_t line, int64_t segment) const {
    const int64_t count = tile_size(row), at = row * segments + segment * count;
    return {words.get() + row * (columns / 4) + line * (kLineColumns / 4) * count,
            scales.get() + at, shifts.get() + at, sums.get() + at, count};
  }
  // The tile of a matrix unit with `row` and `line`; tiles of a part and of a row.
  uint16_t* matrix_tile(int64_t row, int64_t line) const {
    const int64_t part = line / kMatrixPartLines * kMatrixPartTiles;
    const int64_t across = std::min(kMatrixPartTiles, column_tiles() - part);
    const int64_t tile =
        part * row_tiles() + row / kMatrixRows * across + line / kMatrixLines - part;
    return reinterpret_cast<uint16_t*>(tiles.data()) + tile * kMatrixTileValues;
  }
  int64_t row_tiles() const { return (rows + kMatrixRows - 1) / kMatrixRows; }
  int64_t column_tiles() const {
    return (columns / kLineColumns + kMatrixLines - 1) / kMatrixLines;
  }

 private:
  int64_t tile_size(int64_t row) const {
    return kernel_rows() - row < tile_rows ? kernel_rows() - row : tile_rows;
  }
};

}  // namespace curvq::internal
