// Which instruction set products with packed weights run on.
#pragma once

#include <cstdint>

#include "curvq/formats/quantized_matrix.h"
#include "kernels/attention_tile.h"
#include "kernels/double_tile.h"
#include "kernels/integer_tile.h"
#include "kernels/matrix_unit.h"
#include "kernels/panel.h"

namespace curvq::internal {

struct GemmPath {
  const char* name;
  Int16Tile* int16_tile;
  Int8Tile* int8_tile;
  const PanelPath* panels;
  const MatrixUnit* matrix;  // or null
  AttentionStep* attention_step;
  DoubleTile* double_tile;
  bool (*supported)();
};

// The best that this machine has, or the one that CURVQ_CPU names. Throws UsageError if that is
// not possible here.
const GemmPath& select_gemm_path();

// Throws UsageError for sizes, strides and pointers that no product can have.
void check_gemm(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx,
                const void* out, int64_t ldout);

}  // namespace curvq::internal
