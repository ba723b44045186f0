#include "curvq/io/tensor.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "io/text.h"

namespace curvq {

int64_t TensorInfo::num_elements() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      throw FormatError(io::printable(name) + ": shape " + io::printable(shape_string(shape)) +
                        (size < 0 ? " has a negative size" : " has more than 2^63 elements"));
    }
  }
  return count;
}

int64_t TensorInfo::num_bytes() const {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(num_elements(), static_cast<int64_t>(dtype_bytes(dtype)), &bytes)) {
    throw FormatError(io::printable(name) + ": shape " + io::printable(shape_string(shape)) +
                      " takes more than 2^63 bytes");
  }
  return bytes;
}

std::vector<float> TensorView::to_f32() const {
  std::vector<float> out(static_cast<size_t>(num_elements()));
  convert_to_f32(dtype, data, out.size(), out.data());
  return out;
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace curvq
