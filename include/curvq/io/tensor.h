// Tensors as files hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// How a file holds a tensor whose elements are not one after the other in its dtype: blocks of
// codes, rows in another order. Safe to read from several threads.
class TensorEncoding {
 public:
  virtual ~TensorEncoding() = default;
  // What people call it: "Q4_K".
  virtual std::string name() const = 0;
  // Where the file's mapping has it.
  virtual const std::byte* stored() const = 0;
  virtual int64_t stored_bytes() const = 0;
  // Elements [begin, begin + count), row-major, in the tensor's dtype.
  virtual void read(int64_t begin, int64_t count, void* out) const = 0;
};

// A tensor in a mapped file; valid as long as the file's object lives. `data` may be unaligned.
struct TensorView : TensorInfo {
  const std::byte* data = nullptr;  // null where there is an encoding
  std::string file;                 // where it is, for messages
  std::shared_ptr<const TensorEncoding> encoding;

  // Elements [begin, begin + count), row-major, in this dtype, whatever the encoding.
  void read(int64_t begin, int64_t count, void* out) const;
  // The same as float32. Throws UnsupportedError for a dtype without a numeric value.
  void read_f32(int64_t begin, int64_t count, float* out) const;
  // All elements as float32.
  std::vector<float> to_f32() const;
  // The elements' bytes: those in the file, or, with an encoding, decoded into `scratch`.
  const std::byte* bytes(std::vector<std::byte>* scratch) const;

  // What it takes in the file, and in which format: "BF16", "Q4_K".
  int64_t stored_bytes() const { return encoding ? encoding->stored_bytes() : num_bytes(); }
  std::string format() const;
};

// A tensor that owns its bytes.
struct TensorData : TensorInfo {
  std::vector<std::byte> data;
};

// "[576, 1536]".
std::string shape_string(const std::vector<int64_t>& shape);

}  // namespace curvq
