#include <cstring>

#include "curvq/core/error.h"
#include "curvq/io/compressed_tensors.h"

namespace curvq {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Words of 32 bits, along the rows: the first row in the lowest bits.
void pack_zero_points(const ScaleGrid& grid, TensorData* out) {
  const int bits = grid.scheme.bits;
  const int per_word = 32 / bits;
  const int offset = -grid.scheme.min_code();
  std::vector<uint32_t> words(out->data.size() / sizeof(uint32_t), 0);
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t group = 0; group < grid.groups; ++group) {
      const auto code = static_cast<uint32_t>(grid.zero_point(row, group) + offset);
      words[row / per_word * grid.groups + group] |= code << bits * (row % per_word);
    }
  }
  std::memcpy(out->data.data(), words.data(), out->data.size());
}

// Rows of `matrix` without the bytes that round them up to words.
void copy_rows(const QuantizedMatrix& matrix, int64_t bytes_a_row, TensorData* out) {
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    std::memcpy(out->data.data() + row * bytes_a_row, matrix.codes.data() + row * matrix.row_bytes,
                static_cast<size_t>(bytes_a_row));
  }
}

// Codes less their offset.
void copy_signed(const QuantizedMatrix& matrix, TensorData* out) {
  copy_rows(matrix, matrix.cols(), out);
  for (std::byte& code : out->data) code ^= std::byte{0x80};
}

void fill(const QuantizedMatrix& matrix, const std::string& suffix, TensorData* out) {
  const ScaleGrid& grid = matrix.grid;
  if (suffix == "weight_packed") {
    copy_rows(matrix, matrix.row_bytes, out);
  } else if (suffix == "weight" && grid.scheme.element == ElementType::kInt) {
    copy_signed(matrix, out);
  } else if (suffix == "weight") {
    copy_rows(matrix, matrix.cols(), out);
  } else if (suffix == "weight_scale" && grid.scheme.scale_type != ScaleType::kFloat) {
    std::memcpy(out->data.data(), grid.scale_codes.data(), out->data.size());
  } else if (suffix == "weight_scale") {
    convert_from_f32(out->dtype, grid.scales.data(), grid.scales.size(), out->data.data());
  } else if (suffix == "weight_global_scale") {
    std::memcpy(out->data.data(), &grid.global_divisor, sizeof(float));
  } else if (suffix.starts_with("input_")) {
    convert_from_f32(out->dtype, &matrix.input_scale, 1, out->data.data());
  } else if (suffix == "weight_shape") {
    const int64_t shape[2] = {matrix.rows(), matrix.cols()};
    std::memcpy(out->data.data(), shape, sizeof(shape));
  } else {
    pack_zero_points(grid, out);
  }
}

}  // namespace

std::vector<TensorInfo> compressed_tensors_infos(const std::string& name, const Scheme& scheme,
                                                 int64_t rows, int64_t cols) {
  const std::string layout = compressed_tensors_format(scheme);  // also checks the scheme
  const int64_t groups = scheme.num_groups(cols);
  const std::string prefix = name + ".weight";
  std::vector<TensorInfo> infos;
  if (layout == "float-quantized" || layout == "int-quantized") {
    const bool is_int = scheme.element == ElementType::kInt;
    infos.push_back({prefix, is_int ? DType::kI8 : DType::kF8E4M3, {rows, cols}});
    infos.push_back({prefix + "_scale", scheme.scale_dtype, {rows, groups}});
  } else if (layout == "pack-quantized") {
    infos.push_back({prefix + "_packed", DType::kI32, {rows, ceil_div(cols * scheme.bits, 32)}});
    infos.push_back({prefix + "_scale", scheme.scale_dtype, {rows, groups}});
    infos.push_back({prefix + "_shape", DType::kI64, {2}});
    if (!scheme.symmetric) {
      infos.push_back(
          {prefix + "_zero_point", DType::kI32, {ceil_div(rows * scheme.bits, 32), groups}});
    }
  } else {
    const bool is_nvfp4 = scheme.scale_type == ScaleType::kE4M3;
    infos.push_back({prefix + "_packed", DType::kU8, {rows, cols / 2}});
    infos.push_back({prefix + "_scale", is_nvfp4 ? DType::kF8E4M3 : DType::kU8, {rows, groups}});
    if (is_nvfp4) infos.push_back({prefix + "_global_scale", DType::kF32, {1}});
  }
  if (scheme.inputs == InputFormat::kNvfp4)
    infos.push_back({name + ".input_global_scale", DType::kF32, {1}});
  if (scheme.inputs == InputFormat::kFp8Tensor)
    infos.push_back({name + ".input_scale", scheme.scale_dtype, {1}});
  return infos;
}

std::vector<TensorData> compressed_tensors_pack(const std::string& name,
                                                const QuantizedMatrix& matrix) {
  std::vector<TensorData> tensors;
  for (TensorInfo& info :
       compressed_tensors_infos(name, matrix.scheme(), matrix.rows(), matrix.cols())) {
    TensorData tensor;
    static_cast<TensorInfo&>(tensor) = std::move(info);
    tensor.data.resize(static_cast<size_t>(tensor.num_bytes()));
    fill(matrix, tensor.name.substr(name.size() + 1), &tensor);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace curvq
