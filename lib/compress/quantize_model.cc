#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "compress/block_activations.h"
#include "compress/layer_hessians.h"
#include "compress/layer_moments.h"
#include "compress/output_gradients.h"
#include "compress/output_plan.h"
#include "compress/output_target.h"
#include "compress/scratch_file.h"
#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/progress.h"
#include "curvq/io/atomic_output.h"
#include "curvq/kernels/gemm.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

using internal::BlockActivations;
using internal::LayerMoments;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

torch::Tensor window_ids(const TokenWindows& windows) {
  torch::Tensor ids = torch::empty({windows.num_windows, windows.length}, torch::kInt64);
  int64_t* out = ids.data_ptr<int64_t>();
  for (size_t i = 0; i < windows.ids.size(); ++i) out[i] = windows.ids[i];
  return ids;
}

class ModelQuantizer {
 public:
  ModelQuantizer(const std::string& directory, const TokenWindows* calibration,
                 const QuantizeOptions& options, const std::string& stats)
      : directory_(directory),
        calibration_(calibration),
        options_(options),
        model_(directory, Engine::kDequantized) {
    if (model_.quantization()) {
      throw UnsupportedError(directory + ": already quantized; start from the original model");
    }
    std::vector<LayerShape> shapes;
    for (int64_t i = 0; i < model_.config().num_layers; ++i) {
      for (const auto& group : block_linears(model_.config(), i)) {
        for (const LinearInfo& linear : group) {
          shapes.push_back({linear.name, linear.out_features, linear.in_features,
                            model_.checkpoint().at(linear.name + ".weight").dtype});
        }
      }
    }
    plan_ = plan_layers(shapes, options.plan);
    output_ = plan_output(model_.checkpoint(), plan_);
    for (const PlannedLayer& layer : plan_) by_name_[layer.name] = &layer;
    report_.original_bytes = output_.original_bytes;
    report_.stored_bytes = output_.stored_bytes;
    report_.predicted_peak_bytes = predicted_peak();
    for (const PlannedLayer& layer : plan_) {
      if (!layer.scheme) {
        report_.kept.push_back(layer);
        continue;
      }
      report_.quantized_weights += layer.rows * layer.cols;
      report_.quantized_bytes += layer.scheme->stored_bytes(layer.rows, layer.cols);
      if (options.dry_run) {
        LayerResult result;
        result.name = layer.name;
        result.scheme = layer.scheme->describe();
        result.rows = layer.rows;
        result.cols = layer.cols;
        result.bits_per_weight = layer.scheme->bits_per_weight(layer.rows, layer.cols);
        result.relative_error = result.rtn_relative_error = std::nan("");
        report_.layers.push_back(result);
      }
    }
    if (!stats.empty()) stats_.emplace(stats);
    if (calibration_ != nullptr) {
      report_.calibration_tokens = calibration_->num_windows * calibration_->length;
      if (options.held_out > 0 && calibration_->num_windows > 1) {
        const double share = options.held_out * static_cast<double>(calibration_->num_windows);
        held_out_ = std::clamp<int64_t>(std::llround(share), 1, calibration_->num_windows - 1);
      }
    }
    check_inputs();
    warn_of_few_tokens();
  }

  QuantizeReport run(const ReportWriter& write_report) {
    if (options_.dry_run) return report_;
    const Clock::time_point start = Clock::now();
    amax_ = scan_weights(model_.checkpoint(), plan_);
    AtomicOutput output(options_.out, AtomicOutput::Kind::kDirectory, options_.overwrite);
    require_disk_space(output.path(), output_.stored_bytes + (int64_t{16} << 20));
    CheckpointWriter writer(output.path(), output_.tensors, options_.max_shard_bytes);
    for (const TensorView* tensor : output_.copied) {
      writer.write(tensor->name, tensor->data, tensor->num_bytes());
      model_.checkpoint().release(*tensor);
    }
    quantize_blocks(writer, output.path());
    writer.finish();
    copy_other_files(directory_, output.path());
    write_config(output.path() + "/config.json");
    report_.total_seconds = seconds_since(start);
    write_file(output.path() + "/quantization_report.json", write_report(report_));
    output.commit();
    return report_;
  }

 private:
  // What --overwrite may take: an earlier result, never the original or anything else.
  void check_target() const {
    namespace fs = std::filesystem;
    if (options_.out.empty()) return;  // a dry run
    const std::string model = fs::weakly_canonical(directory_).string() + "/";
    const std::string out = fs::weakly_canonical(options_.out).string() + "/";
    if (model.starts_with(out) || out.starts_with(model)) {
      throw UsageError(options_.out + ": is, holds or lies in the original model " + directory_ +
                       "; write to another directory");
    }
    if (options_.overwrite && fs::is_directory(options_.out) && !fs::is_empty(options_.out) &&
        !fs::exists(options_.out + "/quantization_report.json")) {
      throw UsageError(options_.out +
                       ": was not written by curvq (it has no quantization_report.json), so it is "
                       "not overwritten; remove it or write to another directory");
    }
  }

  void check_inputs() const {
    check_target();
    if (stats_) {
      check_stats();
    } else if (options_.method == Method::kGptq && calibration_ == nullptr) {
      throw UsageError(
          "gptq needs calibration data, by --calibration, or a statistics file, by --stats");
    }
    if (calibration_ != nullptr && calibration_->length > model_.config().max_positions) {
      throw UsageError(
          format("%s: windows of %lld tokens exceed the model's %lld positions; set --max-length",
                 calibration_->origin.c_str(), static_cast<long long>(calibration_->length),
                 static_cast<long long>(model_.config().max_positions)));
    }
    if (options_.max_memory_bytes > 0 && report_.predicted_peak_bytes > options_.max_memory_bytes) {
      throw ResourceError(
          format("about %.2f MiB of tensors would be in memory, --max-memory allows %.2f MiB; %s",
                 report_.predicted_peak_bytes / 1048576.0, options_.max_memory_bytes / 1048576.0,
                 options_.method == Method::kGptq ? "use fewer or shorter calibration windows"
                                                  : "the weights of a decoder block need as much"));
    }
  }

  void warn_of_few_tokens() const {
    if (options_.method != Method::kGptq) return;
    for (const PlannedLayer& layer : plan_) {
      if (!layer.scheme || layer.cols <= report_.calibration_tokens) continue;
      log_warning(
          format("%lld calibration tokens are fewer than the %lld inputs of %s: most "
                 "directions are never seen; use more text",
                 static_cast<long long>(report_.calibration_tokens),
                 static_cast<long long>(layer.cols), layer.name.c_str()));
      return;
    }
  }

  void check_stats() const {
    if (calibration_ != nullptr)
      throw UsageError("statistics stand for calibration data; give one of them");
    if (options_.capture != Capture::kFloat || options_.token_weights || options_.held_out > 0) {
      throw UsageError(
          "statistics are of the original model's activations: they need capture float, and have "
          "neither token weights nor held-out windows");
    }
    if (options_.method == Method::kGptq) stats_->require(plan_, options_.output_factor);
    if (stats_->names_model()) {
      stats_->require_model(directory_, model_.checkpoint().content_hash());
    } else {
      log_warning("the statistics do not say which model they are of; taken as they are");
    }
  }

  // Float weights of one block, twice while a layer is replaced; activations; Hessian and factors.
  int64_t predicted_peak() const {
    const DecoderConfig& c = model_.config();
    int64_t weights = 0, largest = 0, features = c.hidden_size, rows = 0;
    for (const auto& group : block_linears(c, 0)) {
      for (const LinearInfo& linear : group) {
        weights += linear.in_features * linear.out_features;
        largest = std::max(largest, linear.in_features * linear.out_features);
        features = std::max(features, linear.in_features);
        rows = std::max(rows, linear.out_features);
      }
    }
    int64_t floats = weights + 8 * largest;
    if (options_.method == Method::kGptq) {
      const int64_t tokens = calibration_ ? calibration_->num_windows * calibration_->length : 0;
      const int64_t streams = corrects() ? 2 : 1;
      floats += streams * tokens * (2 * c.hidden_size + features) + 5 * features * features;
      // float64 of a corrected weight and its factor
      if (corrects()) floats += 8 * features * features + 4 * largest;
      // G twice, one of it in float64, and float64 of D, its transpose and G D
      if (options_.output_factor) floats += 4 * rows * rows + 6 * largest;
    }
    return 4 * floats;
  }

  void quantize_blocks(CheckpointWriter& writer, const std::string& directory) {
    const bool capture = options_.method == Method::kGptq && !stats_;
    std::vector<std::vector<internal::OutputGradients>> gradients;
    if (capture && (options_.token_weights || options_.output_factor)) {
      const Clock::time_point start = Clock::now();
      std::optional<internal::ScratchFile> factors;
      if (options_.output_factor) factors.emplace(directory, factor_bytes());
      gradients = internal::output_gradients(model_, window_ids(*calibration_), options_.seed,
                                             held_out_, factors ? &*factors : nullptr);
      report_.capture_seconds += seconds_since(start);
    }
    torch::NoGradGuard no_grad;
    std::unique_ptr<BlockActivations> activations, originals;
    if (capture) {
      activations = std::make_unique<BlockActivations>(model_.embed(window_ids(*calibration_)),
                                                       options_.calibration_activations());
    }
    if (corrects()) {
      originals = std::make_unique<BlockActivations>(model_.embed(window_ids(*calibration_)),
                                                     Activations::kFloat32);
    }
    Progress progress("quantizing", static_cast<int64_t>(plan_.size()));
    for (int64_t layer = 0; layer < model_.config().num_layers; ++layer) {
      DecoderBlock block = model_.load_block(layer);
      const DecoderBlock original = block;  // shares the tensors
      const auto groups = block.linears();
      size_t slot = 0;
      for (size_t group = 0; group < groups.size(); ++group) {
        const Clock::time_point start = Clock::now();
        if (capture) activations->advance(block, group);
        if (originals) originals->advance(original, group);
        report_.capture_seconds += seconds_since(start);
        LayerMoments moments;  // shared by the group unless each layer weighs tokens in its own way
        for (Linear* linear : groups[group]) {
          if (capture && by_name_.at(linear->info.name)->scheme) {
            const Clock::time_point moments_start = Clock::now();
            if (moments.hessian.empty() || options_.token_weights) {
              internal::MomentsWanted wanted{.held_out = held_out_};
              if (options_.token_weights) wanted.energies = gradients[layer][slot].energies;
              wanted.residual_cross = group % 2 == 1 && options_.residual_correction > 0;
              moments =
                  internal::layer_moments(linear->info.name, *activations, originals.get(), wanted);
            }
            if (originals) correct(*linear, moments);
            report_.capture_seconds += seconds_since(moments_start);
          }
          internal::OutputGradients output;
          if (capture && options_.output_factor) {
            std::swap(output, gradients[layer][slot]);
            output.factor = internal::shrunk_factor(output.factor, seen() * calibration_->length);
          }
          if (stats_ && options_.method == Method::kGptq &&
              by_name_.at(linear->info.name)->scheme) {
            const LinearInfo& info = linear->info;
            moments.hessian = stats_->read(info.name, info.in_features);
            if (options_.output_factor)
              output.factor = stats_->read_output_factor(info.name, info.out_features);
          }
          quantize_linear(*linear, moments, output, writer);
          progress.advance(1, linear->info.name);
          ++slot;
        }
      }
      if (capture && layer + 1 < model_.config().num_layers) {
        const Clock::time_point start = Clock::now();
        activations->finish(block);
        if (originals) originals->finish(original);
        report_.capture_seconds += seconds_since(start);
      }
      model_.release_block(layer);
    }
  }

  int64_t factor_bytes() const {
    int64_t bytes = 0;
    for (const PlannedLayer& layer : plan_) bytes += 4 * layer.rows * layer.rows;
    return held_out_ > 0 ? 2 * bytes : bytes;
  }

  // Calibration windows that rounding sees; the last held_out_ only judge it.
  int64_t seen() const { return calibration_->num_windows - held_out_; }

  bool corrects() const {
    return options_.input_correction > 0 || options_.residual_correction > 0;
  }

  // Moves the layer's weight towards the float layer's outputs.
  void correct(Linear& linear, LayerMoments& moments) const {
    const int64_t k = linear.info.in_features;
    linear.weight = internal::corrected_weight(
        linear.weight, torch::from_blob(moments.hessian.data(), {k, k}), moments.input_cross,
        moments.residual_cross, options_.input_correction, options_.residual_correction,
        std::max(options_.gptq.damping, 1e-3));
  }

  void quantize_linear(Linear& linear, const LayerMoments& moments,
                       const internal::OutputGradients& output, CheckpointWriter& writer) {
    const PlannedLayer& planned = *by_name_.at(linear.info.name);
    if (!planned.scheme) return;
    LayerProblem problem;
    problem.name = planned.name;
    problem.weight = linear.weight.data_ptr<float>();
    problem.rows = planned.rows;
    problem.cols = planned.cols;
    const auto data = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    const auto tensor_data = [](const torch::Tensor& tensor) {
      return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
    };
    problem.hessian = data(moments.hessian);
    problem.output_factor = tensor_data(output.factor);
    problem.held_out_hessian = data(moments.held_out_hessian);
    problem.held_out_factor = tensor_data(output.held_out);
    problem.scheme = *planned.scheme;
    problem.tensor_amax = amax_.at(fused_group_key(planned.name));
    LayerResult result;
    QuantizedMatrix matrix = quantize_layer(problem, options_, result);
    for (const TensorData& tensor : compressed_tensors_pack(planned.name, matrix))
      writer.write(tensor);
    if (options_.capture == Capture::kSequential) use(linear, std::move(matrix));
    report_.solve_seconds += result.seconds;
    report_.layers.push_back(std::move(result));
  }

  // Lets the quantized weights compute what comes behind the layer.
  void use(Linear& linear, QuantizedMatrix matrix) const {
    const Activations activations = options_.calibration_activations();
    if (usable_activations(activations, matrix.scheme()) == Activations::kFloat32) {
      linear.weight = torch::empty({matrix.rows(), matrix.cols()});
      return dequantize(matrix, linear.weight.data_ptr<float>());
    }
    linear.packed = std::make_shared<const QuantizedMatrix>(std::move(matrix));
    linear.activations = activations;
    linear.weight = torch::Tensor();
  }

  void write_config(const std::string& path) const {
    OrderedJson config = OrderedJson::parse(read_file(directory_ + "/config.json"));
    config["quantization_config"] = to_json(describe_plan(plan_, {"lm_head"}));
    write_file(path, dump_json(config));
  }

  std::string directory_;
  const TokenWindows* calibration_;
  const QuantizeOptions& options_;
  std::optional<internal::LayerHessians> stats_;
  DecoderModel model_;
  std::vector<PlannedLayer> plan_;
  OutputPlan output_;
  std::map<std::string, const PlannedLayer*> by_name_;
  std::map<std::string, float> amax_;
  int64_t held_out_ = 0;  // windows
  QuantizeReport report_;
};

}  // namespace

QuantizeReport quantize_model(const std::string& model, const TokenWindows* calibration,
                              const QuantizeOptions& options, const ReportWriter& write_report,
                              const std::string& stats) {
  options.validate();
  at::set_num_threads(num_threads());
  return ModelQuantizer(model, calibration, options, stats).run(write_report);
}

}  // namespace curvq
