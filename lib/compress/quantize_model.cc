#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "compress/block_pass.h"
#include "compress/layer_hessians.h"
#include "compress/layer_problem.h"
#include "compress/layer_result_json.h"
#include "compress/model_output.h"
#include "compress/output_plan.h"
#include "compress/run_state.h"
#include "compress/time_estimate.h"
#include "curvq/compress/mask_file.h"
#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/formats/input_rounding.h"
#include "curvq/io/model_files.h"
#include "curvq/kernels/gemm.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

using internal::LayerMoments;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ModelQuantizer {
 public:
  ModelQuantizer(const std::string& directory, const TokenWindows* calibration,
                 const QuantizeOptions& options, const std::string& stats)
      : directory_(directory), options_(options), model_(directory, Engine::kDequantized) {
    if (model_.quantization() && !model_.quantization()->original) {
      throw UnsupportedError(directory + ": already quantized; start from the original model");
    }
    check_model_target(directory, options.out, options.overwrite);
    if (!stats.empty()) stats_.emplace(stats);
    plan_ = plan_layers(internal::linear_shapes(model_), options.plan);
    set_pass(calibration);
    output_ = plan_output(model_.checkpoint(), plan_);
    for (const PlannedLayer& layer : plan_) by_name_[layer.name] = &layer;
    report_.original_bytes = output_.original_bytes;
    report_.stored_bytes = output_.stored_bytes;
    report_.predicted_peak_bytes = predicted_peak();
    std::vector<LayerShape> quantized;
    for (const PlannedLayer& layer : plan_) {
      if (!layer.scheme) {
        report_.kept.push_back(layer);
        continue;
      }
      quantized.push_back(layer);
      if (options.prune) options.prune->pattern.require_fit(layer.name, layer.rows, layer.cols);
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
    if (calibration != nullptr)
      report_.calibration_tokens = calibration->num_windows * calibration->length;
    if (stats_) check_stats(calibration);
    if (options.uses_hessians() && calibration == nullptr && !stats_) {
      throw UsageError(std::string(options.method == Method::kGptq ? "gptq" : "pruning") +
                       " needs calibration data, by --calibration, or a statistics file, by "
                       "--stats");
    }
    internal::check_pass(model_, pass_, quantized, report_.predicted_peak_bytes,
                         options.max_memory_bytes);
  }

  QuantizeReport run(const ReportWriter& write_report) {
    if (options_.dry_run) {
      if (options_.predict_time) report_.predicted_time = predict_time();
      return report_;
    }
    const Clock::time_point start = Clock::now();
    state_ = internal::open_state(options_.state, model_, pass_);
    pass_.state = state_.get();
    amax_ = scan_weights(model_.checkpoint(), plan_);
    internal::ModelOutput output(options_.out, options_.overwrite, model_.checkpoint(), output_,
                                 options_.max_shard_bytes, mask_bytes(mask_shapes()));
    if (options_.prune) {
      masks_ = std::make_unique<MaskWriter>(output.path() + "/" + kMaskFile, mask_shapes());
    }
    restore(output.weights());
    pass_.scratch = output.path();
    report_.capture_seconds = internal::compress_blocks(
        model_, pass_,
        [&](const std::string& name) { return by_name_.at(name)->scheme.has_value(); },
        [&](Linear& linear, const LayerMoments& moments) {
          quantize_linear(linear, moments, output.weights());
        });
    if (masks_) masks_->finish();
    warn_of_rounding_to_nearest(report_.layers);
    output.finish(new_config());
    report_.total_seconds = seconds_since(start);
    write_file(
        output.path() + (options_.prune ? "/pruning_report.json" : "/quantization_report.json"),
        write_report(report_));
    output.commit();
    if (state_) state_->done();
    return report_;
  }

 private:
  void set_pass(const TokenWindows* calibration) {
    pass_.capture = options_;
    pass_.damping = options_.gptq.damping;
    pass_.label = "quantizing";
    pass_.output_factors = options_.output_factor;
    pass_.hessians = options_.uses_hessians();
    for (const PlannedLayer& layer : plan_) {
      if (!layer.scheme || !has_input_scale(layer.scheme->inputs)) continue;
      pass_.input_amax = true;
      if (calibration != nullptr) break;
      throw UsageError(layer.name + ": inputs " +
                       std::string(input_format_name(layer.scheme->inputs)) +
                       " have a scale that only calibration data gives; use --calibration, or " +
                       (layer.scheme->inputs == InputFormat::kNvfp4 ? "mxfp4, whose scales are"
                                                                    : "fp8, whose scale is") +
                       " found as inputs come");
    }
    if (!pass_.hessians && !pass_.input_amax) return;
    if (stats_) pass_.stats = &*stats_;
    pass_.calibration = calibration;
    if (pass_.hessians && calibration != nullptr)
      pass_.held_out = options_.held_out_windows(calibration->num_windows);
  }

  RunTime predict_time() const {
    const auto wanted = [&](const std::string& name) {
      return by_name_.at(name)->scheme.has_value();
    };
    const auto use_nearest = [&](Linear& linear, const LayerMoments& moments) {
      const PlannedLayer& layer = *by_name_.at(linear.info.name);
      const float* weight = linear.weight.data_ptr<float>();
      QuantizedMatrix matrix = quantize_rtn(weight, layer.rows, layer.cols, *layer.scheme,
                                            max_abs(weight, layer.rows * layer.cols));
      if (moments.input_amax)
        matrix.input_scale = input_scale(matrix.scheme(), *moments.input_amax);
      use(linear, std::move(matrix));
    };
    return internal::copy_time(model_.checkpoint()) +
           internal::pass_time(model_, pass_, wanted, use_nearest) +
           internal::rounding_time(plan_, options_);
  }

  // What the state has of blocks that are finished.
  void restore(CheckpointWriter& writer) {
    if (!state_) return;
    for (int64_t block = 0; block < state_->finished_blocks(); ++block) {
      for (const internal::RunState::Layer& layer : state_->layers_of(block)) {
        for (const TensorData& tensor : layer.tensors) writer.write(tensor);
        const PlannedLayer& planned = *by_name_.at(layer.name);
        if (masks_) masks_->write({layer.name, planned.rows, planned.cols}, layer.mask);
        report_.layers.push_back(internal::layer_result(layer.result));
        report_.solve_seconds += report_.layers.back().seconds;
      }
    }
  }

  void check_stats(const TokenWindows* calibration) const {
    if (calibration != nullptr)
      throw UsageError("statistics stand for calibration data; give one of them");
    if (options_.capture != Capture::kFloat || options_.token_weights || options_.held_out > 0) {
      throw UsageError(
          "statistics are of the original model's activations: they need capture float, and have "
          "neither token weights nor held-out windows");
    }
    if (options_.uses_hessians()) stats_->require(plan_, options_.output_factor);
    if (stats_->names_model()) {
      stats_->require_model(directory_, model_.checkpoint().content_hash());
    } else {
      log_warning("the statistics do not say which model they are of; taken as they are");
    }
  }

  // The pass's, and a layer's weight in its forms while it is replaced.
  int64_t predicted_peak() const {
    int64_t largest = 0;
    for (const PlannedLayer& layer : plan_) largest = std::max(largest, layer.rows * layer.cols);
    return 4 * (internal::pass_floats(model_.config(), pass_) + 8 * largest);
  }

  // Of the layers that are pruned: those that are quantized.
  std::vector<MaskShape> mask_shapes() const {
    std::vector<MaskShape> shapes;
    for (const PlannedLayer& layer : plan_) {
      if (options_.prune && layer.scheme) shapes.push_back({layer.name, layer.rows, layer.cols});
    }
    return shapes;
  }

  void quantize_linear(Linear& linear, const LayerMoments& moments, CheckpointWriter& writer) {
    const PlannedLayer& planned = *by_name_.at(linear.info.name);
    const LayerProblem problem = internal::layer_problem(
        planned, *planned.scheme, amax_.at(fused_group_key(planned.name)), linear.weight, moments);
    LayerResult result;
    std::vector<uint8_t> mask;
    QuantizedMatrix matrix = quantize_layer(problem, options_, result, &mask);
    if (moments.input_amax) matrix.input_scale = input_scale(matrix.scheme(), *moments.input_amax);
    if (masks_) masks_->write({planned.name, planned.rows, planned.cols}, mask);
    std::vector<TensorData> tensors = compressed_tensors_pack(planned.name, matrix);
    for (const TensorData& tensor : tensors) writer.write(tensor);
    if (state_) {
      state_->add(
          {planned.name, std::move(tensors), std::move(mask), internal::layer_result_json(result)});
    }
    use(linear, std::move(matrix));
    if (model_.config().num_experts > 0 && pass_.calibration != nullptr)
      result.tokens = moments.tokens;
    report_.solve_seconds += result.seconds;
    report_.layers.push_back(std::move(result));
  }

  // Lets the quantized weights compute what comes behind the layer.
  void use(Linear& linear, QuantizedMatrix matrix) const {
    linear.inputs = matrix.scheme().inputs;
    linear.input_scale = matrix.input_scale;
    const Activations activations = options_.calibration_activations();
    if (usable_activations(activations, matrix.scheme()) == Activations::kFloat32) {
      linear.weight = torch::empty({matrix.rows(), matrix.cols()});
      return dequantize(matrix, linear.weight.data_ptr<float>());
    }
    linear.packed = std::make_shared<const QuantizedMatrix>(std::move(matrix));
    linear.activations = activations;
    linear.weight = torch::Tensor();
  }

  OrderedJson new_config() const {
    OrderedJson config = OrderedJson::parse(*read_model_file(directory_, "config.json"));
    const DecoderConfig& decoder = model_.config();
    std::vector<std::string> untouched;
    if (!decoder.bidirectional) untouched.push_back(decoder.names.head);
    // What transformers 5.19 calls heads that have other names in checkpoints.
    constexpr const char* kHead = "lm_head";
    if (!decoder.bidirectional && decoder.names.head != kHead) untouched.push_back(kHead);
    for (const TensorView* tensor : model_.checkpoint().tensors()) {
      // A pooler, or a head that is not computed here.
      if (decoder.bidirectional && tensor->shape.size() == 2 && tensor->name.ends_with(".weight") &&
          !tensor->name.starts_with(decoder.names.blocks))
        untouched.push_back(tensor->name.substr(0, tensor->name.size() - 7));
    }
    for (int64_t layer = 0; decoder.num_experts > 0 && layer < decoder.num_layers; ++layer)
      untouched.push_back(decoder.names.block(layer) + decoder.names.router);
    config["quantization_config"] = to_json(describe_plan(plan_, untouched));
    return config;
  }

  std::string directory_;
  const QuantizeOptions& options_;
  std::optional<internal::LayerHessians> stats_;
  DecoderModel model_;
  internal::PassOptions pass_;
  std::vector<PlannedLayer> plan_;
  OutputPlan output_;
  std::map<std::string, const PlannedLayer*> by_name_;
  std::map<std::string, float> amax_;
  std::unique_ptr<MaskWriter> masks_;
  std::unique_ptr<internal::RunState> state_;
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
