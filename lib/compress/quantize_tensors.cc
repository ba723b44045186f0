#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <regex>
#include <set>

#include "compress/layer_hessians.h"
#include "compress/model_output.h"
#include "compress/output_plan.h"
#include "compress/time_estimate.h"
#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "curvq/formats/input_rounding.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/model_files.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {
namespace {

constexpr char kWeight[] = ".weight";

// "...layers.3.mlp..." has the number of a block, as names outside of blocks have not.
bool has_number(const std::string& name) {
  static const std::regex pattern(R"((^|.*\.)[0-9]+\..*)");
  return std::regex_match(name, pattern);
}

// Embeddings and heads lie outside of blocks; routers decide, their rounding errors are not small.
bool stays_in_a_model(const std::string& name) {
  return !has_number(name) || name.ends_with(".gate") || name.ends_with(".router");
}

std::vector<LayerShape> find_layers(const Checkpoint& source) {
  std::vector<LayerShape> layers;
  for (const TensorView* tensor : source.tensors()) {
    const std::string& name = tensor->name;
    const size_t suffix = sizeof(kWeight) - 1;
    if (name.size() <= suffix || name.compare(name.size() - suffix, suffix, kWeight) != 0) continue;
    if (tensor->shape.size() != 2 || !is_floating_point(tensor->dtype) ||
        tensor->num_elements() == 0)
      continue;
    const std::string layer = name.substr(0, name.size() - suffix);
    if (source.is_directory() && stays_in_a_model(layer)) continue;
    layers.push_back({layer, tensor->shape[0], tensor->shape[1], tensor->dtype});
  }
  if (layers.empty()) {
    throw FormatError(
        source.path() +
        (source.is_directory()
             ? ": no 2-D floating-point tensor NAME.weight in numbered blocks; those are taken for "
               "the linear layers of a family that is not known"
             : ": no 2-D floating-point tensor NAME.weight; those are the linear layers of a bare "
               "file"));
  }
  return layers;
}

// Where the checkpoint goes: one .safetensors, or a directory with all that `source` has.
class TensorOutput {
 public:
  TensorOutput(const Checkpoint& source, const OutputPlan& plan,
               const std::vector<PlannedLayer>& layers, const QuantizeOptions& options) {
    if (source.is_directory()) {
      check_model_target(source.path(), options.out, options.overwrite);
      config_ = OrderedJson::parse(*read_model_file(source.path(), "config.json"));
      config_["quantization_config"] = to_json(describe_plan(layers, plain_layers(source, layers)));
      model_.emplace(options.out, options.overwrite, source, plan, options.max_shard_bytes);
      return;
    }
    const bool single = std::filesystem::path(options.out).extension() == ".safetensors";
    file_.emplace(options.out, single ? AtomicOutput::Kind::kFile : AtomicOutput::Kind::kDirectory,
                  options.overwrite);
    directory_ = single ? "" : file_->path();
    require_disk_space(file_->path(), plan.stored_bytes + (int64_t{1} << 20));
    std::map<std::string, std::string> metadata = source.metadata();
    metadata["format"] = "pt";
    metadata["quantization_config"] = to_json(describe_plan(layers, {})).dump();
    writer_.emplace(single ? file_->path() : directory_ + "/model.safetensors", plan.tensors,
                    metadata);
    for (const TensorView* tensor : plan.copied) {
      writer_->write(*tensor);
      source.release(*tensor);
    }
  }

  void write(const TensorData& tensor) {
    if (model_) return model_->weights().write(tensor);
    writer_->write(tensor.name, tensor.data.data(), static_cast<int64_t>(tensor.data.size()));
  }

  void finish(const std::string& report) {
    if (model_) {
      model_->finish(config_);
      write_file(model_->path() + "/quantization_report.json", report);
      return model_->commit();
    }
    writer_->finish();
    if (!directory_.empty()) write_file(directory_ + "/quantization_report.json", report);
    file_->commit();
  }

 private:
  // 2-D weights that are no planned layers: loaders would take them for quantized ones.
  static std::vector<std::string> plain_layers(const Checkpoint& source,
                                               const std::vector<PlannedLayer>& layers) {
    std::set<std::string> planned;
    for (const PlannedLayer& layer : layers) planned.insert(layer.name + kWeight);
    std::vector<std::string> names;
    for (const TensorView* tensor : source.tensors()) {
      if (tensor->shape.size() == 2 && tensor->name.ends_with(kWeight) &&
          planned.count(tensor->name) == 0)
        names.push_back(tensor->name.substr(0, tensor->name.size() - sizeof(kWeight) + 1));
    }
    return names;
  }

  std::optional<internal::ModelOutput> model_;
  OrderedJson config_;
  std::optional<AtomicOutput> file_;
  std::string directory_;
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace

QuantizeReport quantize_tensors(const std::string& file, const std::string& stats_path,
                                const QuantizeOptions& options, const ReportWriter& write_report) {
  options.validate();
  if (options.prune) throw UsageError("pruning needs a model directory");
  const auto start = std::chrono::steady_clock::now();
  const Checkpoint source(file);
  const std::vector<PlannedLayer> plan = plan_layers(find_layers(source), options.plan);
  for (const PlannedLayer& layer : plan) {
    if (!layer.scheme || !has_input_scale(layer.scheme->inputs)) continue;
    throw UsageError(layer.name + ": inputs " +
                     std::string(input_format_name(layer.scheme->inputs)) +
                     " need calibration data, with a model directory of a known family");
  }
  const OutputPlan output_plan = plan_output(source, plan);
  std::optional<internal::LayerHessians> stats;
  if (!stats_path.empty()) {
    stats.emplace(stats_path);
    if (stats->names_model()) stats->require_model(file, source.content_hash());
  }
  if (options.method == Method::kGptq) {
    if (!stats)
      throw UsageError(
          "gptq on a bare .safetensors needs --stats FILE with NAME.hessian or NAME.inputs");
    stats->require(plan, options.output_factor);
  }

  QuantizeReport report;
  report.original_bytes = output_plan.original_bytes;
  report.stored_bytes = output_plan.stored_bytes;
  for (const PlannedLayer& layer : plan) {
    if (!layer.scheme) {
      report.kept.push_back(layer);
      continue;
    }
    report.quantized_weights += layer.rows * layer.cols;
    report.quantized_bytes += layer.scheme->stored_bytes(layer.rows, layer.cols);
    report.predicted_peak_bytes =
        std::max(report.predicted_peak_bytes,
                 4 * (8 * layer.rows * layer.cols + 5 * layer.cols * layer.cols));
  }
  if (options.dry_run) {
    if (options.predict_time)
      report.predicted_time = internal::copy_time(source) + internal::rounding_time(plan, options);
    return report;
  }
  const std::map<std::string, float> amax = scan_weights(source, plan);

  TensorOutput output(source, output_plan, plan, options);

  Progress progress("quantizing", static_cast<int64_t>(plan.size()));
  for (const PlannedLayer& layer : plan) {
    if (!layer.scheme) continue;
    const TensorView& stored = source.at(layer.name + kWeight);
    const std::vector<float> weight = stored.to_f32();
    source.release(stored);
    const std::vector<float> hessian =
        stats ? stats->read(layer.name, layer.cols) : std::vector<float>();
    LayerProblem problem;
    problem.name = layer.name;
    problem.weight = weight.data();
    problem.rows = layer.rows;
    problem.cols = layer.cols;
    problem.hessian = hessian.empty() ? nullptr : hessian.data();
    std::vector<float> inputs;
    if (options.inverse_of_inputs && stats) inputs = stats->read_inputs(layer.name, layer.cols);
    problem.inputs = inputs.empty() ? nullptr : inputs.data();
    problem.num_inputs = static_cast<int64_t>(inputs.size()) / layer.cols;
    torch::Tensor factor;
    if (options.output_factor)
      factor = stats->read_output_factor(layer.name, layer.rows, &problem.factor_shrinkage);
    problem.output_factor = factor.defined() ? factor.data_ptr<float>() : nullptr;
    problem.tensor_amax = amax.at(fused_group_key(layer.name));
    problem.scheme = *layer.scheme;
    LayerResult result;
    const QuantizedMatrix matrix = quantize_layer(problem, options, result);
    for (const TensorData& tensor : compressed_tensors_pack(layer.name, matrix)) {
      output.write(tensor);
    }
    report.solve_seconds += result.seconds;
    report.layers.push_back(std::move(result));
    progress.advance(1, layer.name);
  }
  warn_of_rounding_to_nearest(report.layers);
  report.total_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  output.finish(write_report(report));
  return report;
}

}  // namespace curvq
