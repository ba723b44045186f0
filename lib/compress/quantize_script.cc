#include "curvq/compress/quantize_script.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "compress/layer_hessians.h"
#include "compress/output_plan.h"
#include "compress/script_hessians.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/model_files.h"
#include "curvq/nn/decoder_config.h"
#include "curvq/nn/script_model.h"
#include "curvq/nn/torch_tensor.h"

namespace curvq {
namespace {

using Clock = std::chrono::steady_clock;
constexpr char kScriptFile[] = "model.pt";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void refuse_options(const QuantizeOptions& options) {
  const bool rounds_inputs =
      options.activations.value_or(Activations::kFloat32) != Activations::kFloat32;
  const char* refused = options.prune                      ? "pruning"
                        : options.token_weights            ? "token weights"
                        : options.corrects()               ? "a correction"
                        : options.output_factor            ? "an output factor"
                        : options.inverse_of_inputs        ? "a Sherman-Morrison inverse"
                        : options.plan.assignment          ? "a plan file"
                        : !options.state.directory.empty() ? "a kept state"
                        : rounds_inputs                    ? "rounding of inputs"
                                                           : nullptr;
  if (refused != nullptr) {
    throw UsageError(std::string(refused) +
                     " is for model directories; a TorchScript file goes without");
  }
}

// Throws where an element is not finite.
void check_finite(const std::string& what, const torch::Tensor& tensor) {
  if (!tensor.is_floating_point()) return;
  const torch::Tensor bad = torch::isfinite(tensor).logical_not().flatten().nonzero();
  if (bad.size(0) == 0) return;
  const auto index = bad[0].item<int64_t>();
  throw NumericalError(
      format("%s has %lld elements that are not finite, the first is element %lld "
             "(%g)",
             what.c_str(), static_cast<long long>(bad.size(0)), static_cast<long long>(index),
             tensor.flatten()[index].item<double>()));
}

class ScriptQuantizer {
 public:
  ScriptQuantizer(const std::string& file, const torch::Tensor& x, const QuantizeOptions& options,
                  const std::string& stats)
      : options_(options), x_(x), model_(file) {
    refuse_options(options);
    options.validate();
    plan();
    if (!stats.empty()) {
      stats_.emplace(stats);
      if (stats_->names_model()) stats_->require_model(file, file_hash(file));
      if (options.method == Method::kGptq) stats_->require(plan_, false);
    } else if (options.method == Method::kGptq && !x.defined()) {
      throw UsageError(
          "gptq on a TorchScript file needs --calibration FILE.safetensors with x, or --stats");
    }
    for (const ScriptTensor& tensor : model_.tensors()) {  // of buffers, masks may be infinite
      if (tensor.is_parameter) check_finite(file + ": " + tensor.name, tensor.value);
    }
    if (x_.defined()) check_inputs();
    predict();
  }

  QuantizeReport run(const ReportWriter& write_report) {
    const Clock::time_point start = Clock::now();
    if (options_.dry_run) return report_;
    const bool only_script = is_torchscript(options_.out);
    AtomicOutput output(options_.out,
                        only_script ? AtomicOutput::Kind::kFile : AtomicOutput::Kind::kDirectory,
                        options_.overwrite);
    require_disk_space(output.path(), report_.original_bytes + report_.stored_bytes + (1 << 20));
    if (!only_script) open_weights(output.path());
    quantize();
    report_.total_seconds = seconds_since(start);
    if (only_script) {
      model_.write(output.path(), rounded_);
    } else {
      model_.write(output.path() + "/" + kScriptFile, rounded_);
      writer_->finish();
      write_file(output.path() + "/config.json", dump_json(config()));
      write_file(output.path() + "/quantization_report.json", write_report(report_));
    }
    output.commit();
    return std::move(report_);
  }

 private:
  void plan() {
    std::vector<LayerShape> shapes;
    std::string obstacles;
    for (const ScriptLayer& layer : model_.layers()) {
      LayerShape shape{layer.name, layer.rows, layer.cols, DType::kF32};
      if (!layer.obstacle.empty()) {
        PlannedLayer kept;
        static_cast<LayerShape&>(kept) = shape;
        kept.reason = layer.obstacle;
        report_.kept.push_back(kept);
        obstacles += (obstacles.empty() ? "; " : ", ") + layer.name + ": " + layer.obstacle;
        continue;
      }
      const torch::Tensor& weight = model_.find(layer.weight)->value;
      shape.dtype = view_of(layer.weight, weight, model_.path()).dtype;
      shapes.push_back(shape);
    }
    if (shapes.empty()) {
      throw FormatError(model_.path() +
                        ": forward has no linear layer or convolution whose weight is a parameter "
                        "that can be rounded" +
                        (obstacles.empty() ? ", and a frozen module (torch.jit.freeze) has "
                                             "constants instead; give the module as it was before"
                                           : obstacles));
    }
    plan_ = plan_layers(shapes, options_.plan);
    for (const PlannedLayer& layer : plan_) {
      if (layer.scheme && layer.scheme->inputs != InputFormat::kNone) {
        throw UsageError(layer.name + ": inputs " +
                         std::string(input_format_name(layer.scheme->inputs)) +
                         " are for model directories; a TorchScript file computes with the inputs "
                         "that it has");
      }
    }
  }

  void check_inputs() const {
    check_finite("x of the calibration data", x_);
    model_.forward(x_.narrow(0, 0, 1));
  }

  // Of the quantized layer of that weight; nullptr for other tensors.
  const PlannedLayer* layer_of(const std::string& tensor) const {
    const auto layer = std::find_if(
        model_.layers().begin(), model_.layers().end(),
        [&](const ScriptLayer& l) { return l.weight == tensor && l.obstacle.empty(); });
    if (layer == model_.layers().end()) return nullptr;
    const auto planned = std::find_if(plan_.begin(), plan_.end(),
                                      [&](const PlannedLayer& p) { return p.name == layer->name; });
    return planned->scheme ? &*planned : nullptr;
  }

  void predict() {
    for (const ScriptTensor& tensor : model_.tensors()) {
      const TensorView view = view_of(tensor.name, tensor.value, model_.path());
      report_.original_bytes += view.num_bytes();
      const PlannedLayer* layer = layer_of(tensor.name);
      if (layer == nullptr) {
        infos_.push_back(view);
        continue;
      }
      for (TensorInfo& info :
           compressed_tensors_infos(layer->name, *layer->scheme, layer->rows, layer->cols))
        infos_.push_back(std::move(info));
    }
    int64_t most = 0, hessians = 0;
    for (const PlannedLayer& layer : plan_) {
      if (!layer.scheme) {
        report_.kept.push_back(layer);
        continue;
      }
      report_.quantized_weights += layer.rows * layer.cols;
      report_.quantized_bytes += layer.scheme->stored_bytes(layer.rows, layer.cols);
      most = std::max(most, 4 * (8 * layer.rows * layer.cols + 7 * layer.cols * layer.cols));
      hessians += 12 * layer.cols * layer.cols;
    }
    for (const TensorInfo& info : infos_) report_.stored_bytes += info.num_bytes();
    if (x_.defined()) report_.calibration_tokens = x_.size(0);
    report_.predicted_peak_bytes = 2 * report_.original_bytes + report_.quantized_weights * 4 +
                                   most + (captures_at_once() ? hessians : 0);
    if (options_.max_memory_bytes > 0 && report_.predicted_peak_bytes > options_.max_memory_bytes) {
      throw ResourceError(
          format("about %lld bytes of tensors would be in memory, --max-memory is "
                 "%lld",
                 static_cast<long long>(report_.predicted_peak_bytes),
                 static_cast<long long>(options_.max_memory_bytes)));
    }
  }

  void open_weights(const std::string& directory) {
    writer_ = std::make_unique<CheckpointWriter>(directory, infos_, options_.max_shard_bytes);
    for (const ScriptTensor& tensor : model_.tensors()) {
      if (layer_of(tensor.name) != nullptr) continue;
      const torch::Tensor value = tensor.value.contiguous();
      writer_->write(view_of(tensor.name, value, model_.path()));
    }
  }

  std::vector<const ScriptLayer*> quantized_layers() const {
    std::vector<const ScriptLayer*> layers;
    for (const ScriptLayer& layer : model_.layers()) {
      if (layer_of(layer.weight) != nullptr) layers.push_back(&layer);
    }
    return layers;
  }

  bool captures_at_once() const {
    return x_.defined() && !stats_ && options_.capture == Capture::kFloat;
  }

  void quantize() {
    std::vector<const ScriptLayer*> layers = quantized_layers();
    if (x_.defined() && !stats_) {
      const std::vector<std::string> order = internal::call_order(model_, layers, x_);
      const auto place = [&](const ScriptLayer* layer) {
        return std::find(order.begin(), order.end(), layer->name);
      };
      std::stable_sort(layers.begin(), layers.end(),
                       [&](const auto* a, const auto* b) { return place(a) < place(b); });
    }
    std::map<std::string, float> amax;
    for (const ScriptLayer* layer : layers) {
      const auto largest = model_.find(layer->weight)->value.abs().max().item<float>();
      float& shared = amax[fused_group_key(layer->name)];
      shared = std::max(shared, largest);
    }
    if (captures_at_once()) capture(layers);
    Progress progress("quantizing", static_cast<int64_t>(layers.size()));
    for (const ScriptLayer* layer : layers) {
      if (stats_) {
        hessians_[layer->name] = stats_->read(layer->name, layer->cols);
      } else if (x_.defined() && !captures_at_once()) {
        capture({layer});
      }
      round(*layer, amax.at(fused_group_key(layer->name)));
      progress.advance(1, layer->name);
    }
    warn_of_rounding_to_nearest(report_.layers);
  }

  void capture(const std::vector<const ScriptLayer*>& layers) {
    const Clock::time_point start = Clock::now();
    hessians_.merge(internal::script_hessians(model_, layers, x_));
    report_.capture_seconds += seconds_since(start);
  }

  void round(const ScriptLayer& layer, float tensor_amax) {
    torch::Tensor target = model_.find(layer.weight)->value;
    const torch::Tensor weight = target.detach().to(torch::kFloat32).contiguous();
    const std::vector<float> hessian = std::move(hessians_[layer.name]);
    LayerProblem problem;
    problem.name = layer.name;
    problem.weight = weight.data_ptr<float>();
    problem.rows = layer.rows;
    problem.cols = layer.cols;
    problem.hessian = hessian.empty() ? nullptr : hessian.data();
    problem.tensor_amax = tensor_amax;
    problem.scheme = *layer_of(layer.weight)->scheme;
    LayerResult result;
    const QuantizedMatrix matrix = quantize_layer(problem, options_, result);
    if (writer_) {
      for (const TensorData& tensor : compressed_tensors_pack(layer.name, matrix))
        writer_->write(tensor);
    }
    torch::Tensor rounded = torch::empty(layer.shape, torch::kFloat32);
    dequantize(matrix, rounded.data_ptr<float>());
    const torch::NoGradGuard no_grad;
    if (options_.capture == Capture::kSequential && !stats_) target.copy_(rounded);
    rounded_[layer.weight] = rounded.to(target.scalar_type());
    report_.solve_seconds += result.seconds;
    report_.layers.push_back(std::move(result));
  }

  OrderedJson config() const {
    std::vector<std::string> kept;
    for (const PlannedLayer& layer : report_.kept) kept.push_back(layer.name);
    std::vector<PlannedLayer> quantized;
    for (const PlannedLayer& layer : plan_) {
      if (layer.scheme) quantized.push_back(layer);
    }
    QuantizationConfig quantization = describe_plan(quantized, kept);
    if (quantization.groups.size() == 1) {  // not "Linear": convolutions are none
      quantization.groups.front().targets.clear();
      for (const PlannedLayer& layer : quantized)
        quantization.groups.front().targets.push_back(layer.name);
    }
    OrderedJson convolutions = OrderedJson::object();
    for (const ScriptLayer* layer : quantized_layers()) {
      if (layer->shape.size() > 2) convolutions[layer->name] = layer->shape;
    }
    return {{"model_type", "torchscript"},
            {"torchscript", {{"file", kScriptFile}, {"convolutions", convolutions}}},
            {"quantization_config", to_json(quantization)}};
  }

  const QuantizeOptions& options_;
  torch::Tensor x_;
  ScriptModel model_;
  std::optional<internal::LayerHessians> stats_;
  std::vector<PlannedLayer> plan_;
  std::vector<TensorInfo> infos_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::map<std::string, std::vector<float>> hessians_;  // of layers that are not rounded yet
  std::map<std::string, torch::Tensor> rounded_;        // weights by name, in their dtype
  QuantizeReport report_;
};

}  // namespace

QuantizeReport quantize_script(const std::string& file, const torch::Tensor& x,
                               const QuantizeOptions& options, const ReportWriter& write_report,
                               const std::string& stats) {
  return ScriptQuantizer(file, x, options, stats).run(write_report);
}

}  // namespace curvq
