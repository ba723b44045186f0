#include "io/model_layers.h"

#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/io/gguf.h"
#include "curvq/io/model_files.h"
#include "io/gguf_layers.h"
#include "io/gguf_names.h"
#include "io/text.h"

namespace curvq::io {
namespace {

std::string stem(const std::string& name, const std::string& ending) {
  return name.size() > ending.size() && name.ends_with(ending)
             ? name.substr(0, name.size() - ending.size())
             : std::string();
}

class CompressedTensorsReader : public LayerReader {
 public:
  CompressedTensorsReader(const Json& quantization, const std::string& origin)
      : config_(parse_quantization_config(quantization, origin)), origin_(origin) {}

  std::vector<ModelLayer> find(const Checkpoint& checkpoint) const override {
    std::vector<ModelLayer> layers;
    for (const TensorView* tensor : checkpoint.tensors()) {
      std::string name = stem(tensor->name, ".weight_packed");
      if (name.empty()) {
        name = stem(tensor->name, ".weight");
        if (name.empty() || !checkpoint.find(name + ".weight_scale") ||
            checkpoint.find(name + ".weight_packed"))
          continue;
      }
      const auto scheme = config_.scheme_of(name);
      if (!scheme) {
        throw FormatError(origin_ + ": quantization_config leaves " + printable(name) +
                          " plain, but it is stored quantized");
      }
      const QuantizedMatrix matrix = compressed_tensors_unpack(checkpoint, name, *scheme);
      layers.push_back({name, matrix.scheme(), matrix.rows(), matrix.cols()});
    }
    return layers;
  }
  std::vector<std::string> parts() const override {
    return {".weight",       ".weight_packed",     ".weight_scale",       ".weight_global_scale",
            ".weight_shape", ".weight_zero_point", ".input_global_scale", ".input_scale"};
  }
  QuantizedMatrix read(const Checkpoint& checkpoint, const ModelLayer& layer) const override {
    return compressed_tensors_unpack(checkpoint, layer.name, layer.scheme);
  }

 private:
  QuantizationConfig config_;
  std::string origin_;
};

// Blocks that a QuantizedMatrix can hold are layers, others are values.
class GgufReader : public LayerReader {
 public:
  explicit GgufReader(const std::string& path) : model_(path), names_(model_) {}

  std::vector<ModelLayer> find(const Checkpoint&) const override {
    std::vector<ModelLayer> layers;
    for_each([&](const std::string& name, const GgufTensor& tensor) {
      layers.push_back({name, *scheme_of(tensor.type), tensor.shape[0], tensor.shape[1]});
    });
    return layers;
  }
  std::vector<std::string> parts() const override { return {".weight"}; }
  QuantizedMatrix read(const Checkpoint&, const ModelLayer& layer) const override {
    std::optional<QuantizedMatrix> matrix;
    for_each([&](const std::string& name, const GgufTensor& tensor) {
      if (name == layer.name)
        matrix = unpack_ggml_blocks(tensor, names_.half_head(tensor), scale_of(tensor));
    });
    return std::move(*matrix);
  }

 private:
  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const GgufFile& file : model_.files()) {
      for (const GgufTensor& tensor : file.tensors()) {
        const std::string name = stem(names_.model_name(tensor.name), ".weight");
        const bool is_layer = tensor.shape.size() == 2 && name.starts_with("model.layers.");
        if (is_layer && scheme_of(tensor.type)) fn(name, tensor);
      }
    }
  }

  float scale_of(const GgufTensor& tensor) const {
    const std::string wanted = stem(tensor.name, ".weight") + ".scale";
    float scale = 1;
    for (const GgufFile& file : model_.files()) {
      for (const GgufTensor& other : file.tensors()) {
        if (other.name == wanted) std::memcpy(&scale, other.data, sizeof(scale));
      }
    }
    if (scale != 1 && tensor.type != GgmlType::kNVFP4) {
      throw UnsupportedError(model_.path() + ": tensor " + printable(wanted) + " scales " +
                             ggml_type_info(tensor.type).name +
                             " blocks, whose layout elsewhere has no place for it");
    }
    return scale;
  }

  GgufModel model_;
  GgufNames names_;
};

}  // namespace

std::unique_ptr<LayerReader> compressed_tensors_reader(const Json& quantization,
                                                       const std::string& origin) {
  return std::make_unique<CompressedTensorsReader>(quantization, origin);
}

std::unique_ptr<LayerReader> gguf_reader(const std::string& path) {
  return std::make_unique<GgufReader>(path);
}

ModelLayers::ModelLayers(const std::string& model)
    : checkpoint_(model), config_(read_model_config(model)) {
  const std::string origin = model_file_origin(model, "config.json");
  const auto quantization = config_.find("quantization_config");
  if (checkpoint_.is_gguf()) {
    layout_ = Layout::kGguf;
    reader_ = gguf_reader(model);
  } else if (quantization != config_.end() && !quantization->is_null()) {
    const std::string method = json_string(*quantization, "quant_method", "", origin);
    if (method == "compressed-tensors" || method == "mxfp4") {
      layout_ = Layout::kCompressedTensors;
      reader_ = compressed_tensors_reader(*quantization, origin);
    } else if (method == "modelopt") {
      layout_ = Layout::kModelOpt;
      reader_ = modelopt_reader(*quantization, origin);
    } else if (method == "gptq") {
      const std::string layout = json_string(*quantization, "checkpoint_format", "gptq", origin);
      layout_ = layout == "gptq_v2" ? Layout::kGptqV2 : Layout::kGptq;
      reader_ = gptq_reader(*quantization, origin);
    } else {
      throw UnsupportedError(
          origin + ": quant_method \"" + printable(method) +
          "\" is not handled; handled are compressed-tensors, mxfp4, modelopt, gptq");
    }
  }
  if (!reader_) return;
  layers_ = reader_->find(checkpoint_);
  for (const ModelLayer& layer : layers_) {
    for (const std::string& part : reader_->parts()) parts_.insert(layer.name + part);
  }
}

std::vector<const TensorView*> ModelLayers::plain() const {
  std::vector<const TensorView*> tensors;
  for (const TensorView* tensor : checkpoint_.tensors()) {
    if (parts_.count(tensor->name) == 0) tensors.push_back(tensor);
  }
  return tensors;
}

void ModelLayers::release(const ModelLayer& layer) const {
  for (const std::string& part : reader_->parts()) {
    if (const TensorView* tensor = checkpoint_.find(layer.name + part))
      checkpoint_.release(*tensor);
  }
}

}  // namespace curvq::io
