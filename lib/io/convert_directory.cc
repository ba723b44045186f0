#include <algorithm>
#include <map>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/io/model_files.h"
#include "io/convert_target.h"
#include "io/gptq_layout.h"
#include "io/modelopt.h"

namespace curvq::io {
namespace {

// Modules with a weight that loaders would take for a quantized linear layer.
std::vector<std::string> plain_modules(const std::vector<TensorInfo>& plain) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : plain) {
    const std::string ending = ".weight";
    if (tensor.shape.size() != 2 || !tensor.name.ends_with(ending) ||
        tensor.name.find("embed") != std::string::npos)
      continue;
    names.push_back(tensor.name.substr(0, tensor.name.size() - ending.size()));
  }
  if (std::find(names.begin(), names.end(), "lm_head") == names.end()) names.push_back("lm_head");
  return names;
}

class DirectoryTarget : public ConvertTarget {
 public:
  DirectoryTarget(const std::string& model, const ConvertOptions& options)
      : model_(model), options_(options) {
    config_ = OrderedJson::parse(*read_model_file(model, "config.json"));
    config_.erase("quantization_config");
  }

  void plan(const std::vector<ModelLayer>& layers, const std::vector<TensorInfo>& plain) override {
    infos_ = plain;
    for (const ModelLayer& layer : layers) {
      check(layer, layers.front());
      for (TensorInfo& info : infos_of(layer)) infos_.push_back(std::move(info));
    }
    if (!layers.empty()) config_["quantization_config"] = quantization(layers, plain);
  }

  int64_t num_tensors() const override { return static_cast<int64_t>(infos_.size()); }
  int64_t stored_bytes() const override {
    int64_t bytes = 0;
    for (const TensorInfo& info : infos_) bytes += info.num_bytes();
    return bytes;
  }

  void open(const std::string& path) override {
    path_ = path;
    writer_ = std::make_unique<CheckpointWriter>(path, infos_, options_.max_shard_bytes);
  }
  void write(const ModelLayer& layer, const QuantizedMatrix& matrix) override {
    for (const TensorData& tensor : pack(layer, matrix)) writer_->write(tensor);
  }
  void write(const TensorInfo& tensor, const std::vector<std::byte>& data) override {
    writer_->write(tensor.name, data.data(), static_cast<int64_t>(data.size()));
  }

  void finish() override {
    writer_->finish();
    copy_model_files(model_, path_);
    if (options_.dtype) config_["torch_dtype"] = torch_name(*options_.dtype);
    write_file(path_ + "/config.json", dump_json(config_));
    if (is_gptq() && config_.contains("quantization_config"))
      write_file(path_ + "/quantize_config.json", dump_json(config_["quantization_config"]));
  }

 private:
  static const char* torch_name(DType dtype) {
    return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
  }
  bool is_gptq() const {
    return options_.layout == Layout::kGptq || options_.layout == Layout::kGptqV2;
  }

  void check(const ModelLayer& layer, const ModelLayer& first) const {
    if (options_.layout == Layout::kModelOpt) {
      check_modelopt(layer);
      if (layer.scheme.inputs != first.scheme.inputs) {
        throw UnsupportedError(layer.name + ": is " + layer.scheme.describe() + ", " + first.name +
                               " is " + first.scheme.describe() +
                               "; ModelOpt's NVFP4 rounds the inputs of all layers or of none");
      }
    }
    if (!is_gptq()) return;
    check_gptq(layer);
    Scheme scheme = layer.scheme;
    scheme.scale_dtype = first.scheme.scale_dtype;
    if (scheme == first.scheme) return;
    throw UnsupportedError(layer.name + ": is " + layer.scheme.describe() + ", " + first.name +
                           " is " + first.scheme.describe() +
                           "; the GPTQ layout has one format for all layers");
  }

  std::vector<TensorInfo> infos_of(const ModelLayer& layer) const {
    if (options_.layout == Layout::kModelOpt) return modelopt_infos(layer);
    if (is_gptq()) return gptq_infos(layer);
    return compressed_tensors_infos(layer.name, layer.scheme, layer.rows, layer.cols);
  }

  std::vector<TensorData> pack(const ModelLayer& layer, const QuantizedMatrix& matrix) const {
    if (options_.layout == Layout::kModelOpt) return modelopt_pack(layer, matrix);
    if (is_gptq()) return gptq_pack(layer, matrix, options_.layout == Layout::kGptqV2);
    return compressed_tensors_pack(layer.name, matrix);
  }

  OrderedJson quantization(const std::vector<ModelLayer>& layers,
                           const std::vector<TensorInfo>& plain) const {
    const std::vector<std::string> kept = plain_modules(plain);
    if (options_.layout == Layout::kModelOpt)
      return modelopt_config(layers.front().scheme.inputs, kept);
    if (is_gptq()) {
      if (kept.size() > 1) {
        throw UnsupportedError(kept.front() +
                               ": has a plain weight; the GPTQ layout wants all linear layers of "
                               "the blocks quantized");
      }
      return gptq_config(layers.front().scheme, options_.layout == Layout::kGptqV2);
    }
    QuantizationConfig config;
    config.ignore = kept;
    for (const ModelLayer& layer : layers) {
      Scheme scheme = layer.scheme;  // what the file does not say does not tell groups apart
      scheme.scale_dtype = DType::kF32;
      const auto group =
          std::find_if(config.groups.begin(), config.groups.end(),
                       [&](const QuantizationGroup& g) { return g.scheme == scheme; });
      if (group == config.groups.end()) {
        config.groups.push_back({scheme, {layer.name}});
      } else {
        group->targets.push_back(layer.name);
      }
    }
    if (config.groups.size() == 1) config.groups.front().targets = {"Linear"};
    return to_json(config);
  }

  std::string model_, path_;
  const ConvertOptions& options_;
  OrderedJson config_;
  std::vector<TensorInfo> infos_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace

std::unique_ptr<ConvertTarget> directory_target(const std::string& model,
                                                const ConvertOptions& options) {
  return std::make_unique<DirectoryTarget>(model, options);
}

}  // namespace curvq::io
