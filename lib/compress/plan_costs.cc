#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "compress/block_pass.h"
#include "compress/layer_hessians.h"
#include "compress/layer_problem.h"
#include "compress/output_plan.h"
#include "compress/plan_factors.h"
#include "curvq/compress/plan.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/pattern.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/linalg/symmetric.h"
#include "curvq/nn/decoder_config.h"

namespace curvq {
namespace {

// Rounds layers to all of their formats and weighs the errors.
class CostMeter {
 public:
  CostMeter(const std::string& directory, const TokenWindows* calibration,
            const CostOptions& options, const std::string& stats)
      : options_(options), model_(directory, Engine::kDequantized) {
    if (model_.quantization())
      throw UnsupportedError(directory + ": already quantized; start from the original model");
    if ((calibration != nullptr) == !stats.empty())
      throw UsageError(
          "a plan needs the layers' curvature: calibration data, by --calibration, or a statistics "
          "file, by --stats, and not both");
    choose_layers();
    set_pass(calibration, stats);
  }

  CostReport run(const TokenWindows* calibration, const std::string& stats) {
    if (options_.dry_run) return std::move(report_);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<LayerShape> shapes(report_.layers.begin(), report_.layers.end());
    if (calibration != nullptr) {
      const int64_t held_out = held_out_windows(*calibration);
      const TokenWindows judges =
          held_out > 0 ? window_range(*calibration, calibration->num_windows - held_out, held_out)
                       : *calibration;
      factors_ = std::make_unique<internal::PlanFactorSource>(
          model_, judges, options_.label_draws, options_.rounding.seed, shapes, options_.scratch);
    } else {
      factors_ = std::make_unique<internal::PlanFactorSource>(model_, stats, shapes);
    }
    report_.factor_tokens = factors_->tokens();
    amax_ = scan_weights(model_.checkpoint(), rounded_layers());
    internal::compress_blocks(
        model_, pass_, [&](const std::string& name) { return by_name_.count(name) > 0; },
        [&](Linear& linear, const internal::LayerMoments& moments) {
          measure(linear.weight, moments, report_.layers[by_name_.at(linear.info.name)]);
        });
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // Which layers are planned, and what they can become.
  void choose_layers() {
    const std::vector<LayerShape> shapes = internal::linear_shapes(model_);
    const PlanOptions& plan = options_.rounding.plan;
    for (const std::string& pattern : plan.ignore) require_match("--ignore", pattern, shapes);
    for (const LayerShape& shape : shapes) {
      PlannedLayer kept;
      static_cast<LayerShape&>(kept) = shape;
      for (const std::string& pattern : plan.ignore) {
        if (pattern_matches(pattern, shape.name)) kept.reason = "ignored by '" + pattern + "'";
      }
      LayerCosts layer;
      static_cast<LayerShape&>(layer) = shape;
      layer.fused = fused_group_key(shape.name);
      bool any_of_four_bits = false, fits_four_bits = false;
      for (const std::optional<Scheme>& format : options_.formats) {
        const bool four_bits = format && format->bits == 4;
        any_of_four_bits |= four_bits;
        if (format && !format->divides(shape.cols)) continue;
        fits_four_bits |= four_bits;
        FormatCost cost;
        if (format) {
          cost.scheme = scheme_of_layer(*format, shape);
          cost.bytes = cost.scheme->stored_bytes(shape.rows, shape.cols);
          for (const TensorInfo& tensor :
               compressed_tensors_infos(shape.name, *cost.scheme, shape.rows, shape.cols))
            cost.tensor_bytes += tensor.num_bytes();
        } else {
          cost.bytes = shape.rows * shape.cols * static_cast<int64_t>(dtype_bytes(shape.dtype));
          cost.tensor_bytes = cost.bytes;
        }
        layer.choices.push_back(cost);
      }
      if (kept.reason.empty() && plan.on_indivisible == OnIndivisible::kKeep && any_of_four_bits &&
          !fits_four_bits) {
        kept.reason = format("no format of four bits divides its %lld inputs",
                             static_cast<long long>(shape.cols));
      }
      if (!kept.reason.empty()) {
        report_.kept.push_back(kept);
        continue;
      }
      if (layer.choices.empty()) {
        throw UsageError(shape.name + ": no group of the formats divides its " +
                         std::to_string(shape.cols) +
                         " inputs; let it be kept (--format keep), or leave it out with --ignore");
      }
      by_name_[shape.name] = report_.layers.size();
      report_.layers.push_back(layer);
    }
    if (report_.layers.empty()) throw UsageError("nothing to plan: every linear layer is kept");
    for (const TensorView* tensor : model_.checkpoint().tensors())
      report_.other_bytes += tensor->num_bytes();
    for (const LayerCosts& layer : report_.layers)
      report_.other_bytes -= layer.rows * layer.cols * dtype_bytes(layer.dtype);
  }

  void set_pass(const TokenWindows* calibration, const std::string& stats) {
    rounding_ = options_.rounding;
    rounding_.capture = Capture::kFloat;
    rounding_.input_correction = rounding_.residual_correction = 0;
    rounding_.held_out = calibration != nullptr && rounding_.output_factor ? options_.held_out : 0;
    pass_.capture = rounding_;
    pass_.damping = rounding_.gptq.damping;
    pass_.label = "rounding to every format";
    pass_.output_factors = rounding_.output_factor;
    pass_.scratch = options_.scratch;
    internal::PassOptions whole = pass_;
    whole.calibration = calibration;
    const std::vector<LayerShape> shapes(report_.layers.begin(), report_.layers.end());
    internal::check_pass(model_, whole, shapes, 4 * internal::pass_floats(model_.config(), whole),
                         rounding_.max_memory_bytes);
    if (!rounding_.uses_hessians()) return;
    if (!stats.empty()) {
      stats_.emplace(stats);
      stats_->require(rounded_layers(), rounding_.output_factor);
      pass_.stats = &*stats_;
      return;
    }
    // With an output factor the pass keeps windows out by itself, to judge the sweeps by them.
    const int64_t held_out = held_out_windows(*calibration);
    if (rounding_.output_factor) {
      pass_.held_out = held_out;
      pass_.calibration = calibration;
    } else {
      seen_ = window_range(*calibration, 0, calibration->num_windows - held_out);
      pass_.calibration = &seen_;
    }
  }

  int64_t held_out_windows(const TokenWindows& windows) const {
    QuantizeOptions share;
    share.held_out = options_.held_out;
    return share.held_out_windows(windows.num_windows);
  }

  // The layers that some format rounds, each with one.
  std::vector<PlannedLayer> rounded_layers() const {
    std::vector<PlannedLayer> layers;
    for (const LayerCosts& layer : report_.layers) {
      for (const FormatCost& choice : layer.choices) {
        if (!choice.scheme) continue;
        layers.emplace_back();
        static_cast<LayerShape&>(layers.back()) = layer;
        layers.back().scheme = choice.scheme;
        break;
      }
    }
    return layers;
  }

  void measure(const torch::Tensor& weight, const internal::LayerMoments& moments,
               LayerCosts& layer) const {
    const internal::PlanFactors factors = factors_->read(layer);
    const int64_t rows = layer.rows, cols = layer.cols;
    const double mean_g = factors.g.trace().item<double>() / static_cast<double>(rows);
    const double mean_a = factors.a.trace().item<double>() / static_cast<double>(cols);
    std::vector<float> d(rows * cols);
    for (FormatCost& choice : layer.choices) {
      if (!choice.scheme) continue;
      LayerResult result;
      const QuantizedMatrix matrix = quantize_layer(
          internal::layer_problem(layer, *choice.scheme, amax_.at(layer.fused), weight, moments),
          rounding_, result);
      choice.relative_error = result.relative_error;
      dequantize(matrix, d.data());
      double squares = 0;
      const float* w = weight.data_ptr<float>();
      for (size_t i = 0; i < d.size(); ++i) {
        d[i] = w[i] - d[i];
        squares += static_cast<double>(d[i]) * d[i];
      }
      const float* a = factors.a.data_ptr<float>();
      choice.kronecker = kronecker_trace(d.data(), rows, factors.g.data_ptr<float>(), a, cols) / 2;
      choice.kronecker = std::max(choice.kronecker, 0.0);  // rounding errors of a tiny one
      choice.trace = mean_g * quadratic_trace(d.data(), rows, a, cols) / 2;
      choice.hawq = mean_g * mean_a * squares / 2;
      if (std::isfinite(choice.kronecker + choice.trace + choice.hawq)) continue;
      throw NumericalError(layer.name + ": the predicted loss of " + choice.scheme->describe() +
                           " is not finite; check the model and the data");
    }
  }

  const CostOptions& options_;
  DecoderModel model_;
  QuantizeOptions rounding_;  // of one layer behind original ones
  internal::PassOptions pass_;
  TokenWindows seen_;
  std::optional<internal::LayerHessians> stats_;
  std::unique_ptr<internal::PlanFactorSource> factors_;
  std::map<std::string, float> amax_;
  std::map<std::string, size_t> by_name_;  // in report_.layers
  CostReport report_;
};

}  // namespace

void CostOptions::validate() const {
  rounding.validate();
  if (formats.empty()) throw UsageError("a plan needs at least one format to choose from");
  std::set<std::string> texts;
  for (const std::optional<Scheme>& format : formats) {
    if (format) format->validate();
    if (!texts.insert(rule_text(format)).second)
      throw UsageError("the format '" + rule_text(format) + "' is there twice");
  }
  if (!(held_out >= 0 && held_out < 1))
    throw UsageError(format("held_out is %g, it must be at least 0 and below 1", held_out));
  if (label_draws < 1)
    throw UsageError(
        format("label_draws is %lld, it must be 1 or more", static_cast<long long>(label_draws)));
}

CostReport measure_costs(const std::string& model, const TokenWindows* calibration,
                         const CostOptions& options, const std::string& stats) {
  options.validate();
  at::set_num_threads(num_threads());
  return CostMeter(model, calibration, options, stats).run(calibration, stats);
}

}  // namespace curvq
