// What PrepackedWeight holds.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/kernels/linear.h"
#include "kernels/panel.h"

namespace curvq::internal {

// Bytes on cache lines; many of them on huge pages where the system has them.
class PanelBytes {
 public:
  PanelBytes() = default;
  // Zeros. Throws ResourceError.
  explicit PanelBytes(int64_t size);
  uint8_t* data() const { return bytes_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t[], Free> bytes_;
  int64_t size_ = 0;
};

struct PrepackedWeightParts {
  ScaleGrid grid;  // without its vectors
  float input_scale = 0;
  PanelBytes codes, scales, zero_points;
  std::vector<uint8_t> scale_codes;  // only where they do not say what the scales are
  Panels panels;
  double seconds = 0;

  int64_t num_panels() const { return (grid.rows + kPanelRows - 1) / kPanelRows; }
  int64_t group_columns() const {
    return grid.scheme.group_size == 0 ? grid.cols : grid.scheme.group_size;
  }
  int64_t lines() const { return grid.groups * panels.lines_per_group; }
  int64_t segments() const { return grid.groups * panels.segments_per_group; }
  bool packs_nibbles() const { return panels.element <= PanelElement::kInt4; }
  int64_t line_bytes() const { return packs_nibbles() ? 64 : 128; }
};

// Bytes of a stored scale.
int64_t panel_scale_bytes(PanelScale scale);

}  // namespace curvq::internal
