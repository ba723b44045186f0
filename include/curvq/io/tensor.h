// Tensors as files hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "curvq/formats/dtype.h"

namespace curvq {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first; empty: a scalar

  int64_t num_elements() const;
  int64_t num_bytes() const;
};

// A tensor in a mapped file; valid as long as the file's object lives. `data` may be unaligned.
struct TensorView : TensorInfo {
  const std::byte* data = nullptr;
  std::string file;  // where it is, for messages

  // All elements as float32. Throws UnsupportedError for a dtype without a numeric value.
  std::vector<float> to_f32() const;
};

// A tensor that owns its bytes.
struct TensorData : TensorInfo {
  std::vector<std::byte> data;
};

// "[576, 1536]".
std::string shape_string(const std::vector<int64_t>& shape);

}  // namespace curvq
