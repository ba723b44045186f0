// Writes GGUF files, version 3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "curvq/formats/ggml_type.h"

namespace curvq {

using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>,
                               std::vector<float>, std::vector<std::string>>;
// In the order in which they are written.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensorInfo {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first
  int64_t num_bytes() const;
};

// One file whose tensors are known beforehand; their data may be written in any order.
class GgufWriter {
 public:
  // Writes the head; the file has its full size from then on. An existing file is overwritten.
  // Throws ResourceError, and std::logic_error for rows that are no whole blocks.
  GgufWriter(const std::string& path, const GgufMetadata& metadata,
             const std::vector<GgufTensorInfo>& tensors);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  // `bytes` must be the tensor's size; each tensor is written exactly once (else std::logic_error).
  void write(const std::string& name, const void* data, int64_t bytes);
  // Flushes to disk; throws std::logic_error if a tensor is missing.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace curvq
