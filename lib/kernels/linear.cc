#include "curvq/kernels/linear.h"

#include <algorithm>
#include <memory>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "kernels/gemm_path.h"
#include "kernels/linear_input.h"
#include "kernels/matrix_unit.h"
#include "kernels/panel.h"
#include "kernels/prepacked_weight.h"
#include "kernels/swiglu.h"

namespace curvq {
namespace {

using internal::kLineColumns;
using internal::kPanelRows;
using internal::kSegmentLines;
using internal::LinearInputParts;
using internal::PanelPart;
using internal::Panels;
using internal::PrepackedWeightParts;

// Rows and panels of a task. A part of the inputs of all its rows stays in a second-level cache
// (240 KB in float32) for its panels, a part of one or two panels unpacked in the first; a multiple
// of all tiles' rows.
constexpr int64_t kBlockRows = 240, kBlockPanels = 8, kPanelsTogether = 2;
// With a matrix unit, whose processors have second-level caches of 2 MB.
constexpr int64_t kMatrixBlockRows = 512, kMatrixBlockPanels = 16;

// Where unpacked weights of a block go, one for each thread.
struct Scratch {
  static constexpr int64_t kFloats = internal::kFloatPartLines * kLineColumns * kPanelRows;
  static constexpr int64_t kBytes = internal::kBytePartLines * kLineColumns * kPanelRows;
  static constexpr int64_t kScales = internal::kBytePartLines * kPanelRows;
  alignas(64) float floats[kPanelsTogether * kFloats];
  alignas(64) uint8_t bytes[kPanelsTogether * kBytes];
  alignas(64) float scales[kPanelsTogether * kScales];
  alignas(64) int32_t zeros[kPanelsTogether * kScales];
  alignas(64) uint16_t bf16[internal::kMatrixPanels * internal::kMatrixPanelValues];
  alignas(64) float sums[2][kMatrixBlockRows * kMatrixBlockPanels * kPanelRows];

  static Scratch& of_thread() {
    thread_local const std::unique_ptr<Scratch> scratch(new Scratch);
    return *scratch;
  }
};

struct Block {
  int64_t row, rows, panel, panels;  // rows as the kernels count them
};

// The end of the part that begins at `segment`: whole groups, or segments of one group.
int64_t part_end(const PrepackedWeightParts& weight, int64_t segment, int64_t part_lines) {
  const Panels& panels = weight.panels;
  const int64_t per_group = panels.segments_per_group;
  if (panels.lines_per_group <= part_lines) {
    const int64_t groups = part_lines / panels.lines_per_group;
    return std::min(weight.segments(), segment + groups * per_group);
  }
  const int64_t group_end = (segment / per_group + 1) * per_group;
  return std::min(group_end, segment + part_lines / kSegmentLines);
}

int64_t line_of(const Panels& panels, int64_t segment) {
  return segment / panels.segments_per_group * panels.lines_per_group +
         segment % panels.segments_per_group * kSegmentLines;
}

void multiply_block_on_matrix_unit(const PrepackedWeightParts& weight,
                                   const LinearInputParts& input, const Block& block,
                                   Scratch& scratch, float* sums) {
  using namespace internal;
  const MatrixUnit& unit = *input.matrix;
  const int64_t stride = block.panels * kPanelRows;
  const int64_t row_tiles = (block.rows + kMatrixRows - 1) / kMatrixRows;
  std::fill_n(sums, row_tiles * kMatrixRows * stride, 0.0f);
  unit.begin();
  for (int64_t line = 0; line < weight.lines(); line += kMatrixPartLines) {
    const int64_t end = std::min(line + kMatrixPartLines, weight.lines());
    for (int64_t panel = 0; panel < block.panels; panel += kMatrixPanels) {
      const int64_t count = std::min(kMatrixPanels, block.panels - panel);
      unit.unpack({&weight.panels, block.panel + panel, count, line, end}, scratch.bf16);
      unit.multiply({input.matrix_tile(block.row, line), scratch.bf16, row_tiles,
                     (end - line + kMatrixLines - 1) / kMatrixLines, count,
                     sums + panel * kPanelRows, stride});
    }
  }
  unit.end();
  if (weight.panels.scale != PanelScale::kE4M3) return;
  const float factor = 1 / weight.panels.divisor;
  for (int64_t i = 0; i < block.rows * stride; ++i) sums[i] *= factor;
}

// Sums [rows, 16 panels] of one block.
void multiply_block(const PrepackedWeightParts& weight, const LinearInputParts& input,
                    const Block& block, Scratch& scratch, float* sums) {
  if (input.matrix != nullptr)
    return multiply_block_on_matrix_unit(weight, input, block, scratch, sums);
  const internal::PanelPath& path = *input.path;
  const bool integer = input.integer();
  const int64_t fused_rows = integer                  ? path.fused_byte_rows
                             : weight.packs_nibbles() ? path.fused_float_rows
                                                      : 0;
  const bool fused = block.rows <= fused_rows;
  const int64_t stride = block.panels * kPanelRows;
  const internal::FloatWeights floats{scratch.floats, Scratch::kFloats};
  const internal::ByteWeights bytes{scratch.bytes, scratch.scales, scratch.zeros, Scratch::kBytes,
                                    Scratch::kScales};
  const int64_t part_lines = integer ? internal::kBytePartLines : internal::kFloatPartLines;
  const bool few = fused && (!integer || block.rows <= internal::kFewByteRows);
  const int64_t together = few ? (integer ? path.fused_byte_panels : path.fused_float_panels)
                               : (integer ? path.byte_panels : path.float_panels);
  const auto multiply = [&](int64_t segment, int64_t end, int64_t panel) {
    const int64_t line = line_of(weight.panels, segment);
    const PanelPart part{&weight.panels, block.panel + panel,
                         std::min(together, block.panels - panel), segment, end};
    if (!fused) integer ? path.unpack_bytes(part, bytes) : path.unpack_floats(part, floats);
    for (int64_t row = 0; row < block.rows; row += input.tile_rows) {
      const internal::PanelOut out{sums + row * stride + panel * kPanelRows, stride, segment > 0};
      if (integer) {
        const internal::ByteTile tile = input.byte_tile(block.row + row, line, segment);
        fused ? path.fused_bytes(part, tile, out) : path.multiply_bytes(part, tile, bytes, out);
      } else {
        const internal::FloatTile tile = input.float_tile(block.row + row, line);
        fused ? path.fused_floats(part, tile, out) : path.multiply_floats(part, tile, floats, out);
      }
    }
  };
  // Few rows read a few panels from end to end, as one stream from memory; of many, a part stays in
  // the cache for all panels.
  const int64_t group = fused ? together : block.panels;
  for (int64_t first = 0; first < block.panels; first += group) {
    const int64_t last = std::min(first + group, block.panels);
    for (int64_t segment = 0; segment < weight.segments();) {
      const int64_t end = part_end(weight, segment, part_lines);
      for (int64_t panel = first; panel < last; panel += together) multiply(segment, end, panel);
      segment = end;
    }
  }
  if (input.rows_per_row() == 1) return;
  for (int64_t i = 0; i < block.rows / 2; ++i) {
    for (int64_t j = 0; j < stride; ++j)
      sums[i * stride + j] = sums[2 * i * stride + j] + sums[(2 * i + 1) * stride + j];
  }
}

// Calls fn(block, scratch) for blocks that cover all outputs.
template <class Fn>
void for_each_block(const PrepackedWeightParts& weight, const LinearInputParts& input, Fn&& fn) {
  const int64_t rows = input.kernel_rows(), panels = weight.num_panels();
  if (rows == 0 || panels == 0) return;
  // Waking threads costs as much as some ten thousand products.
  constexpr int64_t kLeastParallel = 65536;
  const bool parallel =
      num_threads() > 1 && rows * weight.grid.rows * weight.grid.cols >= kLeastParallel;
  // Some tasks for every thread, so that none waits long for the last.
  const int64_t share = parallel ? panels / (4 * num_threads()) : panels;
  const bool matrix = input.matrix != nullptr;
  const int64_t block_panels =
      std::clamp<int64_t>(share, 1, matrix ? kMatrixBlockPanels : kBlockPanels);
  const int64_t across = (panels + block_panels - 1) / block_panels;
  const int64_t block_rows = matrix ? kMatrixBlockRows : kBlockRows;
  const int64_t down = (rows + block_rows - 1) / block_rows;
  const auto task = [&](int64_t i) {
    const int64_t panel = i % across * block_panels, row = i / across * block_rows;
    fn(Block{row, std::min(block_rows, rows - row), panel, std::min(block_panels, panels - panel)},
       Scratch::of_thread());
  };
  if (parallel) return parallel_for(0, across * down, task);
  for (int64_t i = 0; i < across * down; ++i) task(i);
}

// Outputs of a block: their first row and column, and how many.
struct OutputBlock {
  int64_t row, rows, column, columns;
  OutputBlock(const Block& block, const LinearInputParts& input, int64_t n)
      : row(block.row / input.rows_per_row()),
        rows(block.rows / input.rows_per_row()),
        column(block.panel * kPanelRows),
        columns(std::min(block.panels * kPanelRows, n - column)) {}
};

void check(const PrepackedWeight& weight, const LinearInput& input, const float* out,
           int64_t ldout) {
  if (!input.parts().fits(weight)) {
    throw UsageError(format(
        "linear: the input was made for other weights than these of %lld x %lld in %s",
        (long long)weight.rows(), (long long)weight.cols(), weight.scheme().describe().c_str()));
  }
  if (ldout < weight.rows()) {
    throw UsageError(format("linear: row stride ldout %lld; at least n = %lld", (long long)ldout,
                            (long long)weight.rows()));
  }
  if (out == nullptr && input.rows() * weight.rows() > 0)
    throw UsageError("linear: out is a null pointer");
}

}  // namespace

void linear(const PrepackedWeight& weight, const LinearInput& input, float* out, int64_t ldout,
            const LinearEnds& ends) {
  check(weight, input, out, ldout);
  if (ends.residual != nullptr && ends.ld_residual < weight.rows()) {
    throw UsageError(format("linear: row stride ld_residual %lld; at least n = %lld",
                            (long long)ends.ld_residual, (long long)weight.rows()));
  }
  const LinearInputParts& x = input.parts();
  for_each_block(weight.parts(), x, [&](const Block& block, Scratch& scratch) {
    float* sums = scratch.sums[0];
    multiply_block(weight.parts(), x, block, scratch, sums);
    const OutputBlock outputs(block, x, weight.rows());
    for (int64_t i = 0; i < outputs.rows; ++i) {
      float* from = sums + i * block.panels * kPanelRows;
      const int64_t row = outputs.row + i;
      if (ends.bias != nullptr) {
        for (int64_t j = 0; j < outputs.columns; ++j) from[j] += ends.bias[outputs.column + j];
      }
      if (ends.residual != nullptr) {
        const float* residual = ends.residual + row * ends.ld_residual + outputs.column;
        for (int64_t j = 0; j < outputs.columns; ++j) from[j] += residual[j];
      }
      std::copy_n(from, outputs.columns, out + row * ldout + outputs.column);
    }
  });
}

void linear_swiglu(const PrepackedWeight& gate, const PrepackedWeight& up, const LinearInput& input,
                   float* out, int64_t ldout, const float* gate_bias, const float* up_bias) {
  check(gate, input, out, ldout);
  check(up, input, out, ldout);
  if (gate.rows() != up.rows()) {
    throw UsageError(format("linear_swiglu: gate has %lld rows, up %lld", (long long)gate.rows(),
                            (long long)up.rows()));
  }
  const LinearInputParts& x = input.parts();
  for_each_block(gate.parts(), x, [&](const Block& block, Scratch& scratch) {
    multiply_block(gate.parts(), x, block, scratch, scratch.sums[0]);
    multiply_block(up.parts(), x, block, scratch, scratch.sums[1]);
    const OutputBlock outputs(block, x, gate.rows());
    for (int64_t i = 0; i < outputs.rows; ++i) {
      const int64_t at = i * block.panels * kPanelRows;
      float *g = scratch.sums[0] + at, *u = scratch.sums[1] + at;
      if (gate_bias != nullptr) {
        for (int64_t j = 0; j < outputs.columns; ++j) g[j] += gate_bias[outputs.column + j];
      }
      if (up_bias != nullptr) {
        for (int64_t j = 0; j < outputs.columns; ++j) u[j] += up_bias[outputs.column + j];
      }
      internal::swiglu(g, u, outputs.columns, out + (outputs.row + i) * ldout + outputs.column);
    }
  });
}

const char* linear_path() { return internal::select_gemm_path().name; }

}  // namespace curvq
