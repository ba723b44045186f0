#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "compress/output_plan.h"
#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "curvq/io/atomic_output.h"
#include "curvq/linalg/symmetric.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {
namespace {

constexpr char kWeight[] = ".weight";

std::vector<LayerShape> find_layers(const Checkpoint& source) {
  std::vector<LayerShape> layers;
  for (const TensorView* tensor : source.tensors()) {
    const std::string& name = tensor->name;
    const size_t suffix = sizeof(kWeight) - 1;
    if (name.size() <= suffix || name.compare(name.size() - suffix, suffix, kWeight) != 0) continue;
    if (tensor->shape.size() != 2 || !is_floating_point(tensor->dtype) ||
        tensor->num_elements() == 0)
      continue;
    layers.push_back(
        {name.substr(0, name.size() - suffix), tensor->shape[0], tensor->shape[1], tensor->dtype});
  }
  if (layers.empty()) {
    throw FormatError(
        source.path() +
        ": no 2-D floating-point tensor NAME.weight; those are the linear layers of a bare file");
  }
  return layers;
}

std::vector<float> read_matrix(const TensorView& tensor, int64_t cols, const char* what) {
  if (tensor.shape.size() != 2 || tensor.shape[1] < cols || !is_floating_point(tensor.dtype)) {
    throw FormatError(tensor.file + ": " + tensor.name + " is " +
                      std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape) +
                      ", " + what);
  }
  return tensor.to_f32();
}

void require_symmetric(const std::vector<float>& h, int64_t n, const TensorView& tensor) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(h[i * n + i]));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (std::abs(h[i * n + j] - h[j * n + i]) <= 1e-4f * largest ||
          !std::isfinite(h[i * n + j]) || !std::isfinite(h[j * n + i])) {
        continue;
      }
      throw FormatError(
          format("%s: %s is not symmetric: entry %lld, %lld is %g, its mirror image %g",
                 tensor.file.c_str(), tensor.name.c_str(), static_cast<long long>(i),
                 static_cast<long long>(j), static_cast<double>(h[i * n + j]),
                 static_cast<double>(h[j * n + i])));
    }
  }
}

// 2/N sum x x^T of a layer with `cols` inputs; empty if the file says nothing about the layer.
std::vector<float> read_hessian(const SafetensorsFile& stats, const std::string& layer,
                                int64_t cols) {
  const std::string size = std::to_string(cols);
  if (const TensorView* tensor = stats.find(layer + ".hessian")) {
    if (tensor->shape != std::vector<int64_t>{cols, cols}) {
      throw FormatError(tensor->file + ": " + tensor->name + " is " + shape_string(tensor->shape) +
                        ", the layer has " + size + " inputs");
    }
    std::vector<float> h = read_matrix(*tensor, cols, "a hessian must be floating-point [in, in]");
    require_symmetric(h, cols, *tensor);
    return h;
  }
  if (const TensorView* tensor = stats.find(layer + ".A")) {
    const bool bias = tensor->shape == std::vector<int64_t>{cols + 1, cols + 1};
    if (!bias && tensor->shape != std::vector<int64_t>{cols, cols}) {
      throw FormatError(tensor->file + ": " + tensor->name + " is " + shape_string(tensor->shape) +
                        ", the layer has " + size +
                        " inputs, so it must be [in, in] or, with a bias, [in + 1, in + 1]");
    }
    const std::vector<float> a = read_matrix(*tensor, cols, "a factor A must be floating-point");
    std::vector<float> h(cols * cols);
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t j = 0; j < cols; ++j) h[i * cols + j] = 2.0f * a[i * tensor->shape[1] + j];
    }
    require_symmetric(h, cols, *tensor);
    return h;
  }
  if (const TensorView* tensor = stats.find(layer + ".inputs")) {
    if (tensor->shape.size() != 2 || tensor->shape[1] != cols || tensor->shape[0] == 0) {
      throw FormatError(tensor->file + ": " + tensor->name + " is " + shape_string(tensor->shape) +
                        ", it must be [n, " + size + "] with n of 1 or more");
    }
    const std::vector<float> x =
        read_matrix(*tensor, cols, "inputs must be floating-point [n, in]");
    const int64_t n = tensor->shape[0];
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(x[i])) continue;
      throw NumericalError(
          format("%s: %s is not finite at sample %lld, feature %lld; damping will not help, check "
                 "this sample",
                 tensor->file.c_str(), tensor->name.c_str(), static_cast<long long>(i / cols),
                 static_cast<long long>(i % cols)));
    }
    std::vector<float> h(cols * cols, 0.0f);
    accumulate_gram(x.data(), n, cols, cols, 2.0f / static_cast<float>(n), h.data());
    mirror_lower(h.data(), cols);
    return h;
  }
  return {};
}

// Statistics for every layer that needs them, checked by name before the first is rounded.
void require_stats(const std::vector<PlannedLayer>& plan, const SafetensorsFile* stats,
                   const std::string& path) {
  if (stats == nullptr)
    throw UsageError(
        "gptq on a bare .safetensors needs --stats FILE with NAME.hessian or NAME.inputs");
  for (const PlannedLayer& layer : plan) {
    if (!layer.scheme) continue;
    if (stats->find(layer.name + ".hessian") || stats->find(layer.name + ".A") ||
        stats->find(layer.name + ".inputs"))
      continue;
    throw FormatError(
        path + ": neither " + layer.name +
        ".hessian nor .A nor .inputs is there; keep the layer with --ignore or use --method rtn");
  }
}

}  // namespace

QuantizeReport quantize_tensors(const std::string& file, const std::string& stats_path,
                                const QuantizeOptions& options, const ReportWriter& write_report) {
  options.validate();
  const auto start = std::chrono::steady_clock::now();
  const Checkpoint source(file);
  const std::vector<PlannedLayer> plan = plan_layers(find_layers(source), options.plan);
  const OutputPlan output_plan = plan_output(source, plan);
  std::unique_ptr<SafetensorsFile> stats;
  if (!stats_path.empty()) stats = std::make_unique<SafetensorsFile>(stats_path);
  if (options.method == Method::kGptq) require_stats(plan, stats.get(), stats_path);

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
  if (options.dry_run) return report;
  const std::map<std::string, float> amax = scan_weights(source, plan);

  const bool single = std::filesystem::path(options.out).extension() == ".safetensors";
  AtomicOutput output(options.out,
                      single ? AtomicOutput::Kind::kFile : AtomicOutput::Kind::kDirectory,
                      options.overwrite);
  require_disk_space(output.path(), output_plan.stored_bytes + (int64_t{1} << 20));
  std::map<std::string, std::string> metadata = source.metadata();
  metadata["format"] = "pt";
  metadata["quantization_config"] = to_json(describe_plan(plan, {})).dump();
  SafetensorsWriter writer(single ? output.path() : output.path() + "/model.safetensors",
                           output_plan.tensors, metadata);
  for (const TensorView* tensor : output_plan.copied)
    writer.write(tensor->name, tensor->data, tensor->num_bytes());

  Progress progress("quantizing", static_cast<int64_t>(plan.size()));
  for (const PlannedLayer& layer : plan) {
    if (!layer.scheme) continue;
    const std::vector<float> weight = source.at(layer.name + kWeight).to_f32();
    const std::vector<float> hessian =
        stats ? read_hessian(*stats, layer.name, layer.cols) : std::vector<float>();
    LayerProblem problem;
    problem.name = layer.name;
    problem.weight = weight.data();
    problem.rows = layer.rows;
    problem.cols = layer.cols;
    problem.hessian = hessian.empty() ? nullptr : hessian.data();
    problem.tensor_amax = amax.at(fused_group_key(layer.name));
    problem.scheme = *layer.scheme;
    LayerResult result;
    const QuantizedMatrix matrix = quantize_layer(problem, options, result);
    for (const TensorData& tensor : compressed_tensors_pack(layer.name, matrix)) {
      writer.write(tensor.name, tensor.data.data(), static_cast<int64_t>(tensor.data.size()));
    }
    report.solve_seconds += result.seconds;
    report.layers.push_back(std::move(result));
    progress.advance(1, layer.name);
  }
  writer.finish();
  report.total_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string text = write_report(report);
  if (!single) write_file(output.path() + "/quantization_report.json", text);
  output.commit();
  return report;
}

}  // namespace curvq
