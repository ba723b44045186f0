#include "io/gptq_layout.h"

#include <cmath>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/text.h"

namespace curvq::io {
namespace {

uint32_t word_at(const TensorView& tensor, int64_t index) {
  uint32_t word;
  std::memcpy(&word, tensor.data + 4 * index, sizeof(word));
  return word;
}

class GptqReader : public LayerReader {
 public:
  GptqReader(const Json& quantization, const std::string& origin) {
    bits_ = json_int(quantization, "bits", origin);
    group_size_ = json_int(quantization, "group_size", -1, origin);
    if (bits_ != 4 && bits_ != 8) {
      throw UnsupportedError(origin + ": bits " + std::to_string(bits_) +
                             " of GPTQ are not handled; handled are 4, 8");
    }
    const std::string layout = json_string(quantization, "checkpoint_format", "gptq", origin);
    if (layout != "gptq" && layout != "gptq_v2") {
      throw UnsupportedError(origin + ": checkpoint_format \"" + printable(layout) +
                             "\" is not handled; handled are gptq, gptq_v2");
    }
    offset_ = layout == "gptq" ? 1 : 0;
    symmetric_ = json_bool(quantization, "sym", true, origin);
  }

  std::vector<ModelLayer> find(const Checkpoint& checkpoint) const override {
    std::vector<ModelLayer> layers;
    for (const TensorView* tensor : checkpoint.tensors()) {
      const std::string ending = ".qweight";
      if (!tensor->name.ends_with(ending)) continue;
      if (tensor->dtype != DType::kI32 || tensor->shape.size() != 2)
        throw FormatError(tensor->file + ": " + printable(tensor->name) + " must be I32 [K/8, N]");
      ModelLayer layer;
      layer.name = tensor->name.substr(0, tensor->name.size() - ending.size());
      layer.rows = tensor->shape[1];
      layer.cols = tensor->shape[0] * 32 / bits_;
      const int64_t group = group_size_ < 0 ? 0 : group_size_;
      layer.scheme = bits_ == 4 ? Scheme::int4(group, symmetric_) : Scheme::int8(group, symmetric_);
      layer.scheme.scale_dtype = DType::kF16;
      if (!layer.scheme.divides(layer.cols) || layer.cols == 0 || layer.rows == 0) {
        throw FormatError(format("%s: %s has %lld inputs, no multiple of the group size %lld",
                                 tensor->file.c_str(), printable(layer.name).c_str(),
                                 static_cast<long long>(layer.cols),
                                 static_cast<long long>(group)));
      }
      layers.push_back(layer);
    }
    return layers;
  }

  std::vector<std::string> parts() const override {
    return {".qweight", ".qzeros", ".scales", ".g_idx"};
  }

  QuantizedMatrix read(const Checkpoint& checkpoint, const ModelLayer& layer) const override {
    const int64_t groups = layer.scheme.num_groups(layer.cols), per_word = 32 / bits_;
    const TensorView& codes = checkpoint.at(layer.name + ".qweight");
    const TensorView& zeros = checkpoint.at(layer.name + ".qzeros");
    const TensorView& scales = checkpoint.at(layer.name + ".scales");
    require(zeros, DType::kI32, {groups, (layer.rows + per_word - 1) / per_word});
    require(scales, DType::kF16, {groups, layer.rows});
    check_order(checkpoint, layer);
    ScaleGrid grid;
    grid.scheme = layer.scheme;
    grid.rows = layer.rows;
    grid.cols = layer.cols;
    grid.groups = groups;
    const std::vector<float> values = scales.to_f32();
    for (int64_t row = 0; row < layer.rows; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const float scale = values[group * layer.rows + row];
        if (!std::isfinite(scale) || scale == 0) {
          throw FormatError(format("%s: %s of row %lld, group %lld is %g", scales.file.c_str(),
                                   printable(scales.name).c_str(), static_cast<long long>(row),
                                   static_cast<long long>(group), static_cast<double>(scale)));
        }
        grid.scales.push_back(scale);
        add_zero_point(zeros, row, group, &grid);
      }
    }
    if (layer.scheme.symmetric) grid.zero_points.clear();
    QuantizedMatrix matrix(std::move(grid));
    for (int64_t col = 0; col < layer.cols; ++col) {
      for (int64_t row = 0; row < layer.rows; ++row) {
        const uint32_t word = word_at(codes, col / per_word * layer.rows + row);
        matrix.set_code(row, col, static_cast<uint8_t>(word >> bits_ * (col % per_word) & mask()));
      }
    }
    return matrix;
  }

 private:
  uint32_t mask() const { return (1u << bits_) - 1; }

  static void require(const TensorView& tensor, DType dtype, const std::vector<int64_t>& shape) {
    if (tensor.dtype == dtype && tensor.shape == shape) return;
    throw FormatError(tensor.file + ": " + printable(tensor.name) + " is " + tensor.format() + " " +
                      shape_string(tensor.shape) + ", wanted " + std::string(dtype_name(dtype)) +
                      " " + shape_string(shape));
  }

  void add_zero_point(const TensorView& zeros, int64_t row, int64_t group, ScaleGrid* grid) const {
    const int64_t per_word = 32 / bits_;
    const uint32_t word = word_at(zeros, group * zeros.shape[1] + row / per_word);
    const int zero = static_cast<int>(word >> bits_ * (row % per_word) & mask()) + offset_ +
                     grid->scheme.min_code();
    if (zero > grid->scheme.max_code() || (grid->scheme.symmetric && zero != 0)) {
      throw UnsupportedError(format(
          "%s: %s of row %lld, group %lld is %d, which %s cannot have", zeros.file.c_str(),
          printable(zeros.name).c_str(), static_cast<long long>(row), static_cast<long long>(group),
          zero - grid->scheme.min_code(), grid->scheme.describe().c_str()));
    }
    grid->zero_points.push_back(static_cast<int8_t>(zero));
  }

  // Groups must be of consecutive inputs.
  static void check_order(const Checkpoint& checkpoint, const ModelLayer& layer) {
    const TensorView* order = checkpoint.find(layer.name + ".g_idx");
    if (order == nullptr) return;
    require(*order, DType::kI32, {layer.cols});
    for (int64_t col = 0; col < layer.cols; ++col) {
      const auto group = static_cast<int64_t>(word_at(*order, col));
      if (group == layer.scheme.group_of(col)) continue;
      throw UnsupportedError(
          format("%s: %s puts input %lld into group %lld: groups in activation "
                 "order (desc_act) have no place in other layouts",
                 order->file.c_str(), printable(order->name).c_str(), static_cast<long long>(col),
                 static_cast<long long>(group)));
    }
  }

  int64_t bits_ = 4, group_size_ = -1;
  int offset_ = 0;
  bool symmetric_ = true;
};

void put_bits(std::vector<std::byte>* data, int64_t word, int shift, uint32_t value) {
  uint32_t bits;
  std::memcpy(&bits, data->data() + 4 * word, sizeof(bits));
  bits |= value << shift;
  std::memcpy(data->data() + 4 * word, &bits, sizeof(bits));
}

}  // namespace

std::unique_ptr<LayerReader> gptq_reader(const Json& quantization, const std::string& origin) {
  return std::make_unique<GptqReader>(quantization, origin);
}

void check_gptq(const ModelLayer& layer) {
  const int64_t per_word = 32 / layer.scheme.bits;
  if (layer.scheme.element != ElementType::kInt) {
    throw UnsupportedError(layer.name + ": is " + layer.scheme.describe() +
                           "; the GPTQ layout holds integers only");
  }
  if (layer.cols % per_word != 0 || layer.rows % per_word != 0) {
    throw UnsupportedError(layer.name + ": " + shape_string({layer.rows, layer.cols}) +
                           " has sizes that are no multiples of " + std::to_string(per_word) +
                           ", which the words of the GPTQ layout need");
  }
}

std::vector<TensorInfo> gptq_infos(const ModelLayer& layer) {
  const int64_t per_word = 32 / layer.scheme.bits, groups = layer.scheme.num_groups(layer.cols);
  return {{layer.name + ".g_idx", DType::kI32, {layer.cols}},
          {layer.name + ".qweight", DType::kI32, {layer.cols / per_word, layer.rows}},
          {layer.name + ".qzeros", DType::kI32, {groups, layer.rows / per_word}},
          {layer.name + ".scales", DType::kF16, {groups, layer.rows}}};
}

std::vector<TensorData> gptq_pack(const ModelLayer& layer, const QuantizedMatrix& matrix, bool v2) {
  std::vector<TensorData> tensors;
  for (const TensorInfo& info : gptq_infos(layer)) {
    tensors.emplace_back();
    static_cast<TensorInfo&>(tensors.back()) = info;
    tensors.back().data.assign(static_cast<size_t>(info.num_bytes()), std::byte{0});
  }
  const Scheme& scheme = matrix.scheme();
  const int bits = scheme.bits;
  const int64_t per_word = 32 / bits;
  for (int64_t col = 0; col < layer.cols; ++col) {
    put_bits(&tensors[0].data, col, 0, static_cast<uint32_t>(scheme.group_of(col)));
    for (int64_t row = 0; row < layer.rows; ++row) {
      put_bits(&tensors[1].data, col / per_word * layer.rows + row,
               bits * static_cast<int>(col % per_word), matrix.code(row, col));
    }
  }
  for (int64_t group = 0; group < matrix.grid.groups; ++group) {
    for (int64_t row = 0; row < layer.rows; ++row) {
      const auto where = [&](const std::string& what) {
        return layer.name + format(": its %s of row %lld, group %lld ", what.c_str(),
                                   static_cast<long long>(row), static_cast<long long>(group));
      };
      const int zero = matrix.grid.zero_point(row, group) - scheme.min_code();
      if (!v2 && zero == 0)
        throw UnsupportedError(where("zero point") + "is 0, which gptq stores as -1; use gptq_v2");
      put_bits(&tensors[2].data, group * (layer.rows / per_word) + row / per_word,
               bits * static_cast<int>(row % per_word), static_cast<uint32_t>(zero - (v2 ? 0 : 1)));
      const float scale = matrix.grid.scale(row, group);
      const uint16_t half = f32_to_f16(scale);
      if (f16_to_f32(half) != scale) {
        throw UnsupportedError(
            where("scale") +
            format("is %.9g, no float16, which the GPTQ layout needs", static_cast<double>(scale)));
      }
      std::memcpy(tensors[3].data.data() + 2 * (group * layer.rows + row), &half, sizeof(half));
    }
  }
  return tensors;
}

OrderedJson gptq_config(const Scheme& scheme, bool v2) {
  const char* layout = v2 ? "gptq_v2" : "gptq";
  return {{"bits", scheme.bits},  {"group_size", scheme.group_size == 0 ? -1 : scheme.group_size},
          {"desc_act", false},    {"sym", scheme.symmetric},
          {"lm_head", false},     {"quant_method", "gptq"},
          {"format", layout},     {"checkpoint_format", layout},
          {"pack_dtype", "int32"}};
}

}  // namespace curvq::io
