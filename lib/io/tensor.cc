#include "curvq/io/tensor.h"

#include <algorithm>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
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

void TensorView::read(int64_t begin, int64_t count, void* out) const {
  if (encoding) return encoding->read(begin, count, out);
  const auto size = static_cast<int64_t>(dtype_bytes(dtype));
  if (count > 0) std::memcpy(out, data + begin * size, static_cast<size_t>(count * size));
}

void TensorView::read_f32(int64_t begin, int64_t count, float* out) const {
  if (!encoding) {
    return convert_to_f32(dtype, data + begin * static_cast<int64_t>(dtype_bytes(dtype)),
                          static_cast<size_t>(count), out);
  }
  if (dtype == DType::kF32) return encoding->read(begin, count, out);
  std::vector<std::byte> elements(static_cast<size_t>(count) * dtype_bytes(dtype));
  encoding->read(begin, count, elements.data());
  convert_to_f32(dtype, elements.data(), static_cast<size_t>(count), out);
}

std::vector<float> TensorView::to_f32() const {
  std::vector<float> out(static_cast<size_t>(num_elements()));
  read_f32(0, num_elements(), out.data());
  return out;
}

const std::byte* TensorView::bytes(std::vector<std::byte>* scratch) const {
  if (!encoding) return data;
  scratch->resize(static_cast<size_t>(num_bytes()));
  constexpr int64_t kPiece = 1 << 18;
  const int64_t count = num_elements(), size = static_cast<int64_t>(dtype_bytes(dtype));
  parallel_for(0, (count + kPiece - 1) / kPiece, [&](int64_t i) {
    const int64_t begin = i * kPiece;
    read(begin, std::min(kPiece, count - begin), scratch->data() + begin * size);
  });
  return scratch->data();
}

std::string TensorView::format() const {
  return encoding ? encoding->name() : std::string(dtype_name(dtype));
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace curvq
