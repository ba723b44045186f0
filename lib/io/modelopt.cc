#include "io/modelopt.h"

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/formats/minifloat.h"
#include "curvq/io/compressed_tensors.h"
#include "io/text.h"

namespace curvq::io {
namespace {

class ModelOptReader : public LayerReader {
 public:
  ModelOptReader(const Json& quantization, const std::string& origin) {
    const std::string algorithm = json_string(quantization, "quant_algo", "", origin);
    if (algorithm != "NVFP4" && algorithm != "W4A16_NVFP4") {
      throw UnsupportedError(origin + ": quant_algo \"" + printable(algorithm) +
                             "\" is not handled; handled are NVFP4, W4A16_NVFP4");
    }
    rounds_inputs_ = algorithm == "NVFP4";
  }

  std::vector<ModelLayer> find(const Checkpoint& checkpoint) const override {
    std::vector<ModelLayer> layers;
    for (const TensorView* tensor : checkpoint.tensors()) {
      const std::string ending = ".weight_scale_2";
      if (!tensor->name.ends_with(ending)) continue;
      const std::string name = tensor->name.substr(0, tensor->name.size() - ending.size());
      const TensorView& codes = checkpoint.at(name + ".weight");
      if (codes.dtype != DType::kU8 || codes.shape.size() != 2 || codes.shape[1] % 8 != 0) {
        throw FormatError(codes.file + ": " + printable(codes.name) + " is " + codes.format() +
                          " " + shape_string(codes.shape) +
                          "; NVFP4 codes are U8 [N, K/2], K in groups of 16");
      }
      layers.push_back({name, Scheme::nvfp4(), codes.shape[0], 2 * codes.shape[1]});
      if (rounds_inputs_ && checkpoint.find(name + ".input_scale") != nullptr)
        layers.back().scheme.inputs = InputFormat::kNvfp4;
    }
    return layers;
  }

  std::vector<std::string> parts() const override {
    return {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"};
  }

  QuantizedMatrix read(const Checkpoint& checkpoint, const ModelLayer& layer) const override {
    const TensorView& codes = checkpoint.at(layer.name + ".weight");
    const TensorView& scales = checkpoint.at(layer.name + ".weight_scale");
    const TensorView& global = checkpoint.at(layer.name + ".weight_scale_2");
    const std::vector<int64_t> wanted = {layer.rows, layer.cols / 16};
    if (scales.dtype != DType::kF8E4M3 || scales.shape != wanted || global.dtype != DType::kF32 ||
        global.num_elements() != 1) {
      throw FormatError(scales.file + ": " + printable(layer.name) +
                        " wants weight_scale F8_E4M3 " + shape_string(wanted) +
                        " and weight_scale_2 F32, found " + scales.format() + " " +
                        shape_string(scales.shape) + " and " + global.format() + " " +
                        shape_string(global.shape));
    }
    ScaleGrid grid;
    grid.scheme = layer.scheme;
    grid.rows = layer.rows;
    grid.cols = layer.cols;
    grid.groups = layer.cols / 16;
    grid.global_divisor = divisor(global);
    const auto* scale_codes = reinterpret_cast<const uint8_t*>(scales.data);
    grid.scale_codes.assign(scale_codes, scale_codes + scales.num_elements());
    for (const uint8_t code : grid.scale_codes) {
      const float value = e4m3_to_f32(code);
      if (!std::isfinite(value) || value <= 0)
        throw FormatError(scales.file + ": " + printable(scales.name) +
                          " has a scale that is no positive number");
      grid.scales.push_back(value / grid.global_divisor);
    }
    QuantizedMatrix matrix(std::move(grid));
    if (layer.scheme.inputs == InputFormat::kNvfp4)
      matrix.input_scale = divisor(checkpoint.at(layer.name + ".input_scale"));
    for (int64_t row = 0; row < layer.rows; ++row) {
      const auto* from = reinterpret_cast<const uint8_t*>(codes.data) + row * codes.shape[1];
      std::copy(from, from + codes.shape[1], matrix.codes.data() + row * matrix.row_bytes);
    }
    return matrix;
  }

 private:
  // What compressed-tensors divides by: ModelOpt's scale multiplies.
  static float divisor(const TensorView& tensor) {
    const float scale = tensor.dtype == DType::kF32 && tensor.num_elements() == 1
                            ? tensor.to_f32()[0]
                            : std::nanf("");
    const float reciprocal = 1.0f / scale;
    if (scale > 0 && std::isfinite(scale) && std::isfinite(reciprocal)) return reciprocal;
    throw FormatError(format("%s: %s is %g; it and its reciprocal must be finite and positive",
                             tensor.file.c_str(), printable(tensor.name).c_str(),
                             static_cast<double>(scale)));
  }

  bool rounds_inputs_ = false;
};

}  // namespace

std::unique_ptr<LayerReader> modelopt_reader(const Json& quantization, const std::string& origin) {
  return std::make_unique<ModelOptReader>(quantization, origin);
}

void check_modelopt(const ModelLayer& layer) {
  if (layer.scheme.scale_type == ScaleType::kE4M3) return;
  throw UnsupportedError(layer.name + ": is " + layer.scheme.describe() +
                         "; of ModelOpt's layouts only NVFP4 is written");
}

std::vector<TensorInfo> modelopt_infos(const ModelLayer& layer) {
  const std::string weight = layer.name + ".weight";
  std::vector<TensorInfo> infos = {
      {weight, DType::kU8, {layer.rows, layer.cols / 2}},
      {weight + "_scale", DType::kF8E4M3, {layer.rows, layer.cols / 16}},
      {weight + "_scale_2", DType::kF32, {}}};
  if (layer.scheme.inputs == InputFormat::kNvfp4)
    infos.push_back({layer.name + ".input_scale", DType::kF32, {}});
  return infos;
}

std::vector<TensorData> modelopt_pack(const ModelLayer& layer, const QuantizedMatrix& matrix) {
  std::vector<TensorData> tensors;
  for (const TensorInfo& info : modelopt_infos(layer)) {
    tensors.emplace_back();
    static_cast<TensorInfo&>(tensors.back()) = info;
    tensors.back().data.resize(static_cast<size_t>(info.num_bytes()));
  }
  for (int64_t row = 0; row < layer.rows; ++row) {
    std::memcpy(tensors[0].data.data() + row * layer.cols / 2,
                matrix.codes.data() + row * matrix.row_bytes, static_cast<size_t>(layer.cols / 2));
  }
  std::memcpy(tensors[1].data.data(), matrix.grid.scale_codes.data(), tensors[1].data.size());
  const float scale = 1.0f / matrix.grid.global_divisor;
  std::memcpy(tensors[2].data.data(), &scale, sizeof(scale));
  if (layer.scheme.inputs == InputFormat::kNvfp4) {
    const float of_inputs = 1.0f / matrix.input_scale;
    std::memcpy(tensors[3].data.data(), &of_inputs, sizeof(of_inputs));
  }
  return tensors;
}

OrderedJson modelopt_config(InputFormat inputs, const std::vector<std::string>& ignore) {
  return {{"quant_method", "modelopt"},
          {"quant_algo", inputs == InputFormat::kNvfp4 ? "NVFP4" : "W4A16_NVFP4"},
          {"kv_cache_quant_algo", nullptr},
          {"group_size", 16},
          {"ignore", ignore},
          {"producer", {{"name", "curvq"}, {"version", ""}}}};
}

}  // namespace curvq::io
