#include <cstring>

#include "curvq/core/error.h"
#include "curvq/io/gguf_writer.h"
#include "curvq/io/model_files.h"
#include "io/convert_target.h"
#include "io/gguf_layers.h"
#include "io/gguf_metadata.h"
#include "io/gguf_names.h"

namespace curvq::io {
namespace {

constexpr char kRopeFactors[] = "rope_freqs.weight";

GgmlType type_of(const TensorInfo& tensor) {
  switch (tensor.dtype) {
    case DType::kF32:
      return GgmlType::kF32;
    case DType::kF16:
      return GgmlType::kF16;
    case DType::kBF16:
      return GgmlType::kBF16;
    default:
      throw UnsupportedError(tensor.name + ": is " + std::string(dtype_name(tensor.dtype)) +
                             "; plain weights of a GGUF are F32, F16 or BF16");
  }
}

std::string name_of(const std::string& name) {
  const auto gguf = gguf_tensor_name(name);
  if (!gguf) throw UnsupportedError(name + ": has no name in llama.cpp's llama architecture");
  return *gguf;
}

// general.file_type, as llama.cpp numbers it.
uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ4_0:
      return 2;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kBF16:
      return 32;
    case GgmlType::kMXFP4:
      return 38;
    case GgmlType::kNVFP4:
      return 39;
    default:
      return 0;
  }
}

class GgufTarget : public ConvertTarget {
 public:
  GgufTarget(const ModelLayers& source, const std::string& model) {
    const std::string origin = model_file_origin(model, "config.json");
    const Json& config = source.config();
    metadata_ = gguf_architecture(config, origin);
    rope_factors_ = gguf_rope_factors(config, origin);
    for (auto& entry : gguf_vocabulary(model, config, json_int(config, "vocab_size", origin)))
      metadata_.push_back(std::move(entry));
    heads_ = json_int(config, "num_attention_heads", origin);
    kv_heads_ = json_int(config, "num_key_value_heads", heads_, origin);
  }

  void plan(const std::vector<ModelLayer>& layers, const std::vector<TensorInfo>& plain) override {
    GgmlType main = GgmlType::kF32;
    for (const TensorInfo& tensor : plain) {
      const std::string name = name_of(tensor.name);
      const bool is_matrix = tensor.shape.size() == 2;
      // llama.cpp computes with vectors in float32.
      infos_.push_back({name, is_matrix ? type_of(tensor) : GgmlType::kF32, tensor.shape});
      if (is_matrix && layers.empty()) main = type_of(tensor);
      half_head(tensor.name, tensor.shape[0]);
    }
    for (const ModelLayer& layer : layers) {
      const std::string weight = name_of(layer.name + ".weight");
      main = ggml_type_of(layer.scheme, layer.cols, layer.name);
      infos_.push_back({weight, main, {layer.rows, layer.cols}});
      if (main == GgmlType::kNVFP4) infos_.push_back({scale_name(weight), GgmlType::kF32, {1}});
      half_head(layer.name + ".weight", layer.rows);
    }
    if (!rope_factors_.empty()) {
      infos_.push_back(
          {kRopeFactors, GgmlType::kF32, {static_cast<int64_t>(rope_factors_.size())}});
    }
    metadata_.emplace_back("general.file_type", file_type(main));
  }

  int64_t num_tensors() const override { return static_cast<int64_t>(infos_.size()); }
  int64_t stored_bytes() const override {
    int64_t bytes = 0;
    for (const GgufTensorInfo& info : infos_) bytes += info.num_bytes();
    return bytes;
  }

  void open(const std::string& path) override {
    writer_ = std::make_unique<GgufWriter>(path, metadata_, infos_);
    if (rope_factors_.empty()) return;
    writer_->write(kRopeFactors, rope_factors_.data(),
                   static_cast<int64_t>(rope_factors_.size() * sizeof(float)));
  }

  void write(const ModelLayer& layer, const QuantizedMatrix& matrix) override {
    const std::string weight = name_of(layer.name + ".weight");
    const std::vector<std::byte> blocks =
        pack_ggml_blocks(matrix, half_head(layer.name + ".weight", layer.rows), layer.name);
    writer_->write(weight, blocks.data(), static_cast<int64_t>(blocks.size()));
    if (layer.scheme.scale_type != ScaleType::kE4M3) return;
    const float scale = 1.0f / matrix.grid.global_divisor;
    writer_->write(scale_name(weight), &scale, sizeof(scale));
  }

  void write(const TensorInfo& tensor, const std::vector<std::byte>& data) override {
    const int64_t rows = tensor.shape[0], half = half_head(tensor.name, rows);
    std::vector<std::byte> ordered;
    if (tensor.shape.size() == 2) {
      ordered = data;
    } else {
      std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
      convert_to_f32(tensor.dtype, data.data(), values.size(), values.data());
      ordered.resize(values.size() * sizeof(float));
      std::memcpy(ordered.data(), values.data(), ordered.size());
    }
    if (half != 0) {
      const std::vector<std::byte> rows_in_order = ordered;
      const size_t row_bytes = ordered.size() / static_cast<size_t>(rows);
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(ordered.data() + stored_row(row, half) * row_bytes,
                    rows_in_order.data() + row * row_bytes, row_bytes);
      }
    }
    writer_->write(name_of(tensor.name), ordered.data(), static_cast<int64_t>(ordered.size()));
  }

  void finish() override { writer_->finish(); }

 private:
  static std::string scale_name(const std::string& weight) {
    return weight.substr(0, weight.size() - std::strlen("weight")) + "scale";
  }

  int64_t half_head(const std::string& name, int64_t rows) const {
    const bool is_q = name.find(".self_attn.q_proj.") != std::string::npos;
    if (!is_q && name.find(".self_attn.k_proj.") == std::string::npos) return 0;
    const int64_t heads = is_q ? heads_ : kv_heads_;
    if (heads < 1 || rows % (2 * heads) != 0) {
      throw FormatError(name + ": its " + std::to_string(rows) + " rows are no whole heads (" +
                        std::to_string(heads) + ")");
    }
    return rows / heads / 2;
  }

  GgufMetadata metadata_;
  std::vector<float> rope_factors_;
  int64_t heads_ = 0, kv_heads_ = 0;
  std::vector<GgufTensorInfo> infos_;
  std::unique_ptr<GgufWriter> writer_;
};

}  // namespace

std::unique_ptr<ConvertTarget> gguf_target(const ModelLayers& source, const std::string& model) {
  return std::make_unique<GgufTarget>(source, model);
}

}  // namespace curvq::io
