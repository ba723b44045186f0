#include "curvq/eval/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/eval/stored_tensors.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {
namespace {

constexpr int64_t kChunk = 1 << 18;  // elements; two buffers of 1 MiB a thread

struct Sums {
  int64_t elements = 0;
  double aa = 0, bb = 0, ab = 0, dd = 0, max_abs = 0;

  void add(const Sums& other) {
    elements += other.elements;
    aa += other.aa;
    bb += other.bb;
    ab += other.ab;
    dd += other.dd;
    max_abs = std::max(max_abs, other.max_abs);
  }
};

Sums sums_of(const float* a, const float* b, int64_t count) {
  Sums sums;
  sums.elements = count;
  for (int64_t i = 0; i < count; ++i) {
    const double x = a[i], y = b[i], d = y - x;
    sums.aa += x * x;
    sums.bb += y * y;
    sums.ab += x * y;
    sums.dd += d * d;
    sums.max_abs = std::max(sums.max_abs, std::fabs(d));
  }
  return sums;
}

TensorError error_of(const Sums& sums) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TensorError error;
  error.elements = sums.elements;
  if (!std::isfinite(sums.aa + sums.bb + sums.dd)) {
    error.relative_error = error.max_abs_error = error.cosine = error.sqnr_db =
        std::numeric_limits<double>::quiet_NaN();
    return error;
  }
  if (sums.dd == 0) {
    error.sqnr_db = kInfinity;
    return error;
  }
  error.max_abs_error = sums.max_abs;
  error.relative_error = sums.aa == 0 ? kInfinity : std::sqrt(sums.dd / sums.aa);
  error.sqnr_db = sums.aa == 0 ? -kInfinity : 10 * std::log10(sums.aa / sums.dd);
  // Rounding may lift the quotient over 1.
  error.cosine = sums.aa == 0 || sums.bb == 0
                     ? 0
                     : std::min(1.0, sums.ab / (std::sqrt(sums.aa) * std::sqrt(sums.bb)));
  return error;
}

bool same_bytes(const StoredTensor& a, const StoredTensor& b) {
  if (a.scheme != b.scheme || a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    const TensorView &x = *a.parts[i], &y = *b.parts[i];
    if (x.dtype != y.dtype || x.shape != y.shape) return false;
    if (x.encoding || y.encoding) return false;  // compared by value
    if (std::memcmp(x.data, y.data, x.num_bytes()) != 0) return false;
  }
  return true;
}

Sums compare_values(const StoredTensors& tensors_a, const StoredTensor& a,
                    const StoredTensors& tensors_b, const StoredTensor& b) {
  const StoredTensors::Reader reader_a(tensors_a, a), reader_b(tensors_b, b);
  const int64_t count = a.num_elements(), num_chunks = (count + kChunk - 1) / kChunk;
  std::vector<Sums> chunks(num_chunks);
  parallel_for(0, num_chunks, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(count, begin + kChunk);
    std::vector<float> x(end - begin), y(end - begin);
    reader_a.read(begin, end, x.data());
    reader_b.read(begin, end, y.data());
    chunks[chunk] = sums_of(x.data(), y.data(), end - begin);
  });
  Sums total;
  for (const Sums& chunk : chunks) total.add(chunk);
  return total;
}

// Of layers that one checkpoint stores transposed.
Sums compare_transposed(const StoredTensors& tensors_a, const StoredTensor& a,
                        const StoredTensors& tensors_b, const StoredTensor& b) {
  const int64_t count = a.num_elements(), rows = a.shape[0], cols = a.shape[1];
  std::vector<float> x(count), y(count), turned(count);
  StoredTensors::Reader(tensors_a, a).read(0, count, x.data());
  StoredTensors::Reader(tensors_b, b).read(0, count, y.data());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) turned[r * cols + c] = y[c * rows + r];
  }
  return sums_of(x.data(), turned.data(), count);
}

// Whether one is a convolution's weight, packed as a matrix.
bool same_as_matrices(const StoredTensor& a, const StoredTensor& b) {
  return a.scheme.has_value() != b.scheme.has_value() && !a.shape.empty() && !b.shape.empty() &&
         a.shape[0] == b.shape[0] && a.num_elements() == b.num_elements();
}

// Whether the family stores layers as [in, out], unless they are quantized.
bool stores_transposed(const StoredTensors& tensors) {
  if (tensors.config().is_null()) return false;
  try {
    return DecoderConfig::from_directory(tensors.path()).transposed_weights;
  } catch (const Error&) {
    return false;
  }
}

void require_readable(const StoredTensors& tensors) {
  if (!tensors.unread_quantization().empty()) throw UnsupportedError(tensors.unread_quantization());
}

}  // namespace

Comparison compare_checkpoints(const std::string& path_a, const std::string& path_b) {
  const StoredTensors tensors_a(path_a), tensors_b(path_b);
  require_readable(tensors_a);
  require_readable(tensors_b);

  const bool any_transposed = stores_transposed(tensors_a) && stores_transposed(tensors_b);
  Comparison comparison;
  Sums total, quantized;
  Progress progress("comparing", static_cast<int64_t>(tensors_a.tensors().size()));
  for (const StoredTensor& a : tensors_a.tensors()) {
    progress.advance(1, a.name);
    const StoredTensor* b = tensors_b.find(a.name);
    if (!b) {
      comparison.only_in_a.push_back(a.name);
      continue;
    }
    const bool transposed =
        any_transposed && a.shape.size() == 2 && a.scheme.has_value() != b->scheme.has_value();
    std::vector<int64_t> shape_b = b->shape;
    if (transposed) std::reverse(shape_b.begin(), shape_b.end());
    if (a.shape != shape_b && !same_as_matrices(a, *b)) {
      comparison.shape_mismatches.push_back({a.name, a.shape, b->shape});
      continue;
    }
    const auto compare = transposed ? compare_transposed : compare_values;
    const Sums sums = compare(tensors_a, a, tensors_b, *b);
    TensorComparison result;
    result.name = a.name;
    result.shape = a.shape;
    result.format_a = a.format();
    result.format_b = b->format();
    result.quantized_a = a.scheme.has_value();
    result.quantized_b = b->scheme.has_value();
    result.identical = same_bytes(a, *b);
    result.error = error_of(sums);
    total.add(sums);
    if (result.quantized_a || result.quantized_b) quantized.add(sums);
    comparison.num_identical += result.identical;
    comparison.tensors.push_back(std::move(result));
    tensors_a.release(a);
    tensors_b.release(*b);
  }
  for (const StoredTensor& b : tensors_b.tensors()) {
    if (!tensors_a.find(b.name)) comparison.only_in_b.push_back(b.name);
  }
  if (comparison.tensors.empty() && comparison.shape_mismatches.empty()) {
    throw FormatError(path_a + " and " + path_b + " have no tensor in common (" +
                      std::to_string(comparison.only_in_a.size()) + " and " +
                      std::to_string(comparison.only_in_b.size()) + " tensors)");
  }
  comparison.total = error_of(total);
  comparison.quantized = error_of(quantized);
  return comparison;
}

}  // namespace curvq
