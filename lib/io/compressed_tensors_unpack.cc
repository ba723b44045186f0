#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/input_rounding.h"
#include "curvq/formats/minifloat.h"
#include "curvq/io/compressed_tensors.h"
#include "io/text.h"

namespace curvq {
namespace {

using Shape = std::vector<int64_t>;

// Reads one layer's tensors into a matrix.
class LayerReader {
 public:
  LayerReader(const Checkpoint& checkpoint, const std::string& name, const Scheme& scheme)
      : checkpoint_(checkpoint), name_(name), prefix_(name + ".weight") {
    grid_.scheme = scheme;
  }

  QuantizedMatrix read() {
    const Scheme& scheme = grid_.scheme;
    const bool is_packed = checkpoint_.find(prefix_ + "_packed") != nullptr;
    if (scheme.element == ElementType::kE2M1) {
      read_fp4_shape();
    } else if (scheme.element == ElementType::kInt && is_packed) {
      read_packed_int_shape();
    } else {
      read_plain_shape();
    }
    grid_.groups = scheme.num_groups(grid_.cols);
    if (scheme.scale_type == ScaleType::kFloat) {
      read_float_scales();
    } else {
      read_coded_scales();
    }
    if (scheme.element == ElementType::kInt) read_zero_points();
    QuantizedMatrix matrix(std::move(grid_));
    if (codes_->dtype == DType::kI8) {
      copy_signed(&matrix);
    } else {
      copy_codes(&matrix);
    }
    matrix.input_scale = read_input_scale(matrix.scheme().inputs);
    return matrix;
  }

 private:
  [[noreturn]] void reject(const TensorView& tensor, const std::string& why) const {
    throw FormatError(format("%s: %s is %s %s, %s", tensor.file.c_str(),
                             io::printable(tensor.name).c_str(),
                             std::string(dtype_name(tensor.dtype)).c_str(),
                             io::printable(shape_string(tensor.shape)).c_str(), why.c_str()));
  }

  // The tensor of this suffix, with one of these dtypes.
  const TensorView& require(const char* suffix, std::initializer_list<DType> dtypes) const {
    const TensorView& tensor = checkpoint_.at(prefix_ + suffix);
    if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
      std::string wanted;
      for (const DType dtype : dtypes) {
        wanted += (wanted.empty() ? "wanted " : " or ") + std::string(dtype_name(dtype));
      }
      reject(tensor, wanted + " for " + grid_.scheme.describe());
    }
    return tensor;
  }

  void require_shape(const TensorView& tensor, const Shape& wanted) const {
    if (tensor.shape != wanted)
      reject(tensor, "wanted " + shape_string(wanted) + " for a weight of " +
                         shape_string({grid_.rows, grid_.cols}));
  }

  void set_codes(const TensorView& tensor) {
    if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 1) {
      reject(tensor, "wanted a matrix that is not empty");
    }
    codes_ = &tensor;
    code_bytes_ = tensor.bytes(&scratch_);
    grid_.rows = tensor.shape[0];
  }

  void require_whole_groups() const {
    if (grid_.scheme.divides(grid_.cols)) return;
    reject(*codes_, format("its %lld columns are no multiple of the group size %lld",
                           static_cast<long long>(grid_.cols),
                           static_cast<long long>(grid_.scheme.group_size)));
  }

  void read_fp4_shape() {
    set_codes(require("_packed", {DType::kU8}));
    grid_.cols = 2 * codes_->shape[1];
    require_whole_groups();
  }

  void read_packed_int_shape() {
    set_codes(require("_packed", {DType::kI32}));
    const TensorView& shape = require("_shape", {DType::kI64, DType::kI32});
    require_count(shape, 2);
    int64_t sizes[2] = {};
    for (int i = 0; i < 2; ++i) {
      int32_t narrow = 0;
      std::memcpy(shape.dtype == DType::kI64 ? static_cast<void*>(&sizes[i]) : &narrow,
                  shape.data + i * static_cast<int64_t>(dtype_bytes(shape.dtype)),
                  dtype_bytes(shape.dtype));
      if (shape.dtype == DType::kI32) sizes[i] = narrow;
    }
    const int64_t per_word = 32 / grid_.scheme.bits;
    const int64_t words = codes_->shape[1];
    grid_.cols = sizes[1];
    if (sizes[0] != grid_.rows || (words - 1) * per_word >= grid_.cols ||
        grid_.cols > words * per_word) {
      reject(*codes_, "which does not hold the " + shape_string({sizes[0], sizes[1]}) +
                          " codes of " + std::to_string(grid_.scheme.bits) +
                          " bits that weight_shape tells");
    }
    require_whole_groups();
  }

  void read_plain_shape() {
    const bool is_int = grid_.scheme.element == ElementType::kInt;
    set_codes(require("", {is_int ? DType::kI8 : DType::kF8E4M3}));
    grid_.cols = codes_->shape[1];
    require_whole_groups();
  }

  void require_count(const TensorView& tensor, int64_t count) const {
    if (tensor.num_elements() != count) {
      reject(tensor, format("wanted %lld elements", static_cast<long long>(count)));
    }
  }

  // Whether one value serves all rows (strategy "tensor").
  bool is_one_for_all(const TensorView& tensor) const {
    return grid_.scheme.group_size == 0 && tensor.num_elements() == 1;
  }

  bool is_column(const TensorView& tensor) const {
    return grid_.scheme.group_size == 0 && tensor.shape == Shape{grid_.rows};
  }

  void read_float_scales() {
    const TensorView& tensor = require("_scale", {DType::kF32, DType::kF16, DType::kBF16});
    grid_.scheme.scale_dtype = tensor.dtype;
    if (is_one_for_all(tensor)) {
      grid_.scales.assign(static_cast<size_t>(grid_.rows), tensor.to_f32()[0]);
    } else {
      if (!is_column(tensor)) require_shape(tensor, {grid_.rows, grid_.groups});
      grid_.scales = tensor.to_f32();
    }
    check_scales(tensor);
  }

  void read_coded_scales() {
    const bool is_nvfp4 = grid_.scheme.scale_type == ScaleType::kE4M3;
    if (is_nvfp4) read_global_scale();
    const TensorView& tensor = require("_scale", {is_nvfp4 ? DType::kF8E4M3 : DType::kU8});
    require_shape(tensor, {grid_.rows, grid_.groups});
    std::vector<std::byte> scratch;
    const auto* codes = reinterpret_cast<const uint8_t*>(tensor.bytes(&scratch));
    grid_.scale_codes.assign(codes, codes + tensor.num_elements());
    grid_.scales.reserve(grid_.scale_codes.size());
    for (const uint8_t code : grid_.scale_codes) {
      grid_.scales.push_back(is_nvfp4 ? e4m3_to_f32(code) / grid_.global_divisor
                                      : e8m0_to_f32(code));
    }
    check_scales(tensor);
  }

  void read_global_scale() {
    const TensorView& tensor = require("_global_scale", {DType::kF32});
    require_count(tensor, 1);
    grid_.global_divisor = tensor.to_f32()[0];
    if (!std::isfinite(grid_.global_divisor) || grid_.global_divisor <= 0) {
      reject(tensor, format("its value %g must be finite and positive", grid_.global_divisor));
    }
  }

  float read_input_scale(InputFormat inputs) const {
    if (!has_input_scale(inputs)) return 0;
    const bool divides = inputs == InputFormat::kNvfp4;
    const TensorView& tensor =
        checkpoint_.at(name_ + (divides ? ".input_global_scale" : ".input_scale"));
    const bool half = tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
    if (tensor.dtype != DType::kF32 && (divides || !half))
      reject(tensor, divides ? "wanted F32" : "wanted F32, F16 or BF16");
    require_count(tensor, 1);
    const float scale = tensor.to_f32()[0];
    if (!std::isfinite(scale) || scale <= 0)
      reject(tensor, format("its value %g must be finite and positive", scale));
    return scale;
  }

  void check_scales(const TensorView& tensor) const {
    for (size_t i = 0; i < grid_.scales.size(); ++i) {
      if (std::isfinite(grid_.scales[i])) continue;
      reject(tensor,
             format("row %lld group %lld is not finite", static_cast<long long>(i) / grid_.groups,
                    static_cast<long long>(i) % grid_.groups));
    }
  }

  // Packed along the rows into words, or (older writers, and the plain layouts) a byte each.
  void read_zero_points() {
    const bool is_symmetric = grid_.scheme.symmetric;
    if (is_symmetric && checkpoint_.find(prefix_ + "_zero_point") == nullptr) return;
    const TensorView& tensor = require("_zero_point", {DType::kI32, DType::kI8});
    const int bits = grid_.scheme.bits;
    const int64_t per_word = 32 / bits;
    const bool is_packed = tensor.dtype == DType::kI32;
    const bool is_one = !is_packed && is_one_for_all(tensor);
    if (is_packed) {
      require_shape(tensor, {(grid_.rows + per_word - 1) / per_word, grid_.groups});
    } else if (!is_one && !is_column(tensor)) {
      require_shape(tensor, {grid_.rows, grid_.groups});
    }
    for (int64_t row = 0; row < grid_.rows; ++row) {
      for (int64_t group = 0; group < grid_.groups; ++group) {
        int value = 0;
        if (is_packed) {
          uint32_t word = 0;
          std::memcpy(&word, tensor.data + 4 * (row / per_word * grid_.groups + group),
                      sizeof(word));
          const uint32_t code = word >> bits * (row % per_word) & ((1u << bits) - 1);
          value = static_cast<int>(code) + grid_.scheme.min_code();
        } else {
          value = static_cast<int8_t>(tensor.data[is_one ? 0 : row * grid_.groups + group]);
        }
        add_zero_point(tensor, row, group, value);
      }
    }
    if (is_symmetric) grid_.zero_points.clear();
  }

  void add_zero_point(const TensorView& tensor, int64_t row, int64_t group, int value) {
    const Scheme& scheme = grid_.scheme;
    if (value < scheme.min_code() || value > scheme.max_code() ||
        (scheme.symmetric && value != 0)) {
      reject(tensor, format("row %lld group %lld holds %d, which %s cannot have",
                            static_cast<long long>(row), static_cast<long long>(group), value,
                            scheme.describe().c_str()));
    }
    grid_.zero_points.push_back(static_cast<int8_t>(value));
  }

  void copy_codes(QuantizedMatrix* matrix) const {
    const int64_t bits = matrix->scheme().bits;
    const int64_t stored = codes_->num_bytes() / matrix->rows();
    const int64_t used = (matrix->cols() * bits + 7) / 8;
    for (int64_t row = 0; row < matrix->rows(); ++row) {
      uint8_t* out = matrix->codes.data() + row * matrix->row_bytes;
      std::memcpy(out, code_bytes_ + row * stored, static_cast<size_t>(used));
      if (matrix->cols() * bits % 8 != 0) out[used - 1] &= 0x0F;  // spare bits are zero
    }
    if (matrix->scheme().element == ElementType::kE4M3) check_no_nan(*matrix);
  }

  void check_no_nan(const QuantizedMatrix& matrix) const {
    for (int64_t row = 0; row < matrix.rows(); ++row) {
      const uint8_t* codes = matrix.codes.data() + row * matrix.row_bytes;
      const uint8_t* end = codes + matrix.cols();
      const uint8_t* nan = std::find_if(codes, end, [](uint8_t c) { return (c & 0x7F) == 0x7F; });
      if (nan == end) continue;
      reject(*codes_, format("row %lld column %lld is not a number", static_cast<long long>(row),
                             static_cast<long long>(nan - codes)));
    }
  }

  // Integers that are stored as they are, not offset.
  void copy_signed(QuantizedMatrix* matrix) const {
    const Scheme& scheme = matrix->scheme();
    for (int64_t row = 0; row < matrix->rows(); ++row) {
      for (int64_t col = 0; col < matrix->cols(); ++col) {
        const int value = static_cast<int8_t>(code_bytes_[row * matrix->cols() + col]);
        if (value < scheme.min_code() || value > scheme.max_code()) {
          reject(*codes_, format("row %lld column %lld holds %d, which %s cannot have",
                                 static_cast<long long>(row), static_cast<long long>(col), value,
                                 scheme.describe().c_str()));
        }
        matrix->set_code(row, col, static_cast<uint8_t>(value - scheme.min_code()));
      }
    }
  }

  const Checkpoint& checkpoint_;
  std::string name_, prefix_;
  ScaleGrid grid_;
  const TensorView* codes_ = nullptr;
  const std::byte* code_bytes_ = nullptr;
  std::vector<std::byte> scratch_;
};

}  // namespace

QuantizedMatrix compressed_tensors_unpack(const Checkpoint& checkpoint, const std::string& name,
                                          Scheme scheme) {
  scheme.validate();
  return LayerReader(checkpoint, name, scheme).read();
}

}  // namespace curvq
