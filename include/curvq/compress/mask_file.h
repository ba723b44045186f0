// Pruning masks in a file: what stays zero when a pruned model is trained on or compressed further.
//
// A .safetensors file that holds for each pruned layer NAME.mask, U8 [rows, ceil(cols / 8)]: one
// bit a weight, 1 where it is kept, column 0 in the lowest bit of a row's first byte, unused bits
// 0. Metadata: "format" = "curvq-mask", "columns" = {"NAME": cols, ...} as JSON text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "curvq/io/safetensors.h"

namespace curvq {

// Where it lies in a model directory: a folder of its own, because programs take every .safetensors
// file beside config.json for weights.
inline constexpr char kMaskFile[] = "pruning/masks.safetensors";

struct MaskShape {
  std::string layer;
  int64_t rows = 0, cols = 0;
};

// Bytes of the masks of these layers.
int64_t mask_bytes(const std::vector<MaskShape>& layers);

class MaskWriter {
 public:
  // Makes the file's folder. Throws ResourceError.
  MaskWriter(const std::string& path, const std::vector<MaskShape>& layers);
  // mask [rows, cols], 0 or 1. Each layer exactly once.
  void write(const MaskShape& layer, const std::vector<uint8_t>& mask);
  void finish();

 private:
  std::unique_ptr<SafetensorsWriter> writer_;
};

// The mask [rows, cols] of a layer, one byte a weight. Throws FormatError if the file is none of
// masks, does not hold the layer, or in another shape.
std::vector<uint8_t> read_mask(const SafetensorsFile& file, const MaskShape& layer);

}  // namespace curvq
