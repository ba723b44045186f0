#include "curvq/compress/prune_model.h"

#include <chrono>
#include <cmath>
#include <memory>

#include "compress/block_pass.h"
#include "compress/layer_result_json.h"
#include "compress/model_output.h"
#include "compress/output_plan.h"
#include "compress/sparsity_allocation.h"
#include "curvq/compress/mask_file.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/core/pattern.h"
#include "curvq/io/model_files.h"

namespace curvq {
namespace {

class ModelPruner {
 public:
  ModelPruner(const std::string& directory, const TokenWindows* calibration,
              const PruneModelOptions& options)
      : options_(options), model_(directory, Engine::kDequantized) {
    check_model_target(directory, options.out, options.overwrite);
    pass_.capture = options;
    pass_.damping = options.prune.damping;
    pass_.label = "pruning";
    if (options.uses_hessians()) pass_.calibration = calibration;
    if (model_.quantization()) {
      throw UnsupportedError(directory + ": already quantized; start from the original model");
    }
    if (options.uses_hessians() && calibration == nullptr) {
      throw UsageError((options.prune.sweeps > 0 ? "a sweep" : method_name(options.prune.method)) +
                       " needs calibration data; give it with --calibration");
    }
    if (!options.stats.empty()) {
      if (model_.config().transposed_weights)
        throw UnsupportedError(directory + ": statistics of weights that " +
                               model_.config().family +
                               " stores transposed are not handled; use --calibration");
      stats_ = std::make_unique<SafetensorsFile>(options.stats);
    }
    plan();
    report_.predicted_peak_bytes = predicted_peak();
    std::vector<LayerShape> layers;
    for (const auto& [name, shape] : shapes_) layers.push_back(shape);
    internal::check_pass(model_, pass_, layers, report_.predicted_peak_bytes,
                         options.max_memory_bytes);
    if (calibration != nullptr)
      report_.calibration_tokens = calibration->num_windows * calibration->length;
  }

  PruneReport run(const PruneReportWriter& write_report) {
    if (options_.dry_run) return report_;
    const auto start = std::chrono::steady_clock::now();
    state_ = internal::open_state(options_.state, model_, pass_);
    pass_.state = state_.get();
    scan_weights(model_.checkpoint(), {});
    internal::ModelOutput output(options_.out, options_.overwrite, model_.checkpoint(), output_,
                                 options_.max_shard_bytes, report_.mask_bytes);
    MaskWriter masks(output.path() + "/" + kMaskFile, masks_);
    restore(output.weights(), masks);
    if (options_.allocation == Allocation::kGlobal) allocate();
    report_.capture_seconds += internal::compress_blocks(
        model_, pass_, [&](const std::string& name) { return shapes_.count(name) > 0; },
        [&](Linear& linear, const internal::LayerMoments& moments) {
          const std::vector<float>& hessian = moments.hessian;
          prune_linear(linear, hessian.empty() ? nullptr : hessian.data(), output.weights(), masks);
        });
    masks.finish();
    output.finish(OrderedJson::parse(*read_model_file(model_.checkpoint().path(), "config.json")));
    report_.total_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    write_file(output.path() + "/pruning_report.json", write_report(report_));
    output.commit();
    if (state_) state_->done();
    return report_;
  }

 private:
  void plan() {
    const std::vector<LayerShape> shapes = internal::linear_shapes(model_);
    for (const std::string& pattern : options_.ignore) require_match("--ignore", pattern, shapes);
    for (const LayerShape& shape : shapes) {
      std::string reason;
      for (const std::string& pattern : options_.ignore) {
        if (pattern_matches(pattern, shape.name)) reason = "ignored by '" + pattern + "'";
      }
      if (!reason.empty()) {
        report_.kept.push_back({shape, std::nullopt, reason});
        continue;
      }
      add(shape);
    }
    if (shapes_.empty())
      throw UsageError("nothing would be pruned: every linear layer is kept; the first, " +
                       report_.kept.front().name + ": " + report_.kept.front().reason);
    for (const TensorView* tensor : model_.checkpoint().tensors()) {
      output_.tensors.push_back(*tensor);
      output_.stored_bytes += tensor->num_bytes();
      const std::string& name = tensor->name;
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos || name.substr(dot) != ".weight" ||
          shapes_.count(name.substr(0, dot)) == 0)
        output_.copied.push_back(tensor);
    }
    output_.original_bytes = output_.stored_bytes;
    report_.original_bytes = report_.stored_bytes = output_.stored_bytes;
    report_.mask_bytes = mask_bytes(masks_);
  }

  void add(const LayerShape& shape) {
    const SparsityPattern& pattern = options_.prune.pattern;
    pattern.require_fit(shape.name, shape.rows, shape.cols);
    shapes_[shape.name] = shape;
    masks_.push_back({shape.name, shape.rows, shape.cols});
    report_.weights += shape.rows * shape.cols;
    if (stats_) warn_of(shape, read_stats(shape));  // what does not fit is known now
    if (!options_.dry_run) return;
    PrunedLayer layer;
    layer.name = shape.name;
    layer.pattern = pattern.describe();
    layer.rows = shape.rows;
    layer.cols = shape.cols;
    layer.sparsity = pattern.share();
    layer.relative_error = layer.magnitude_relative_error = std::nan("");
    report_.layers.push_back(layer);
  }

  void warn_of(const LayerShape& shape, const std::vector<float>& stats) const {
    const bool gradients = options_.prune.method == PruneMethod::kWoodFisher;
    const std::string what =
        stats_->path() + ": " + shape.name + (gradients ? ".gradients" : ".diagonal");
    if (std::all_of(stats.begin(), stats.end(), [](float value) { return value == 0; }))
      log_warning(what + " is zero throughout; it ranks no weight of the layer above another");
    const auto negative =
        std::count_if(stats.begin(), stats.end(), [](float value) { return value < 0; });
    if (!gradients && negative > 0) {
      log_warning(format("%s: %lld of %zu are negative; these weights go first", what.c_str(),
                         static_cast<long long>(negative), stats.size()));
    }
  }

  // The pass's; a layer's weight in its forms, its H in float64.
  int64_t predicted_peak() const {
    int64_t largest = 0, features = 0;
    for (const auto& [name, shape] : shapes_) {
      largest = std::max(largest, shape.rows * shape.cols);
      features = std::max(features, shape.cols);
    }
    const int64_t wide = options_.prune.sweeps > 0 ? 2 * features * features : 0;
    return 4 * (internal::pass_floats(model_.config(), pass_) + 8 * largest + wide);
  }

  // What the state has of blocks that are finished.
  void restore(CheckpointWriter& weights, MaskWriter& masks) {
    if (!state_) return;
    for (int64_t block = 0; block < state_->finished_blocks(); ++block) {
      for (const internal::RunState::Layer& layer : state_->layers_of(block)) {
        for (const TensorData& tensor : layer.tensors) weights.write(tensor);
        const LayerShape& shape = shapes_.at(layer.name);
        masks.write({shape.name, shape.rows, shape.cols}, layer.mask);
        report(internal::pruned_layer(layer.result), layer.mask);
      }
    }
  }

  void report(PrunedLayer layer, const std::vector<uint8_t>& mask) {
    report_.zero_weights += std::count(mask.begin(), mask.end(), 0);
    report_.solve_seconds += layer.seconds;
    report_.layers.push_back(std::move(layer));
  }

  // Sets each layer's sparsity by one threshold for all.
  void allocate() {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::vector<internal::FactorDiagonals>> factors;
    if (options_.prune.method != PruneMethod::kMagnitude && !stats_) {
      factors = internal::factor_diagonals(model_, internal::window_ids(*pass_.calibration),
                                           options_.seed);
    }
    std::vector<internal::SaliencyHistogram> histograms;
    std::vector<std::string> names;
    for (int64_t block = 0; block < model_.config().num_layers; ++block) {
      DecoderBlock weights = model_.load_block(block);
      size_t slot = 0;
      for (const auto& group : weights.linears()) {
        for (Linear* linear : group) {
          const auto shape = shapes_.find(linear->info.name);
          if (shape != shapes_.end()) {
            torch::Tensor saliency = linear->weight.square();
            if (stats_) {
              saliency *= torch::tensor(read_stats(shape->second)).view(saliency.sizes());
            } else if (!factors.empty()) {
              const internal::FactorDiagonals& of = factors[block][slot];
              saliency *= torch::outer(of.gradients, of.inputs);
            }
            names.push_back(linear->info.name);
            histograms.emplace_back();
            const float* values = saliency.data_ptr<float>();
            for (int64_t i = 0; i < saliency.numel(); ++i) histograms.back().add(values[i]);
          }
          ++slot;
        }
      }
      model_.release_block(block);
    }
    constexpr double kMost = 0.95;
    const std::vector<double> shares =
        internal::shares_below_threshold(histograms, options_.prune.pattern.sparsity,
                                         std::max(kMost, options_.prune.pattern.sparsity));
    for (size_t i = 0; i < names.size(); ++i) sparsity_[names[i]] = shares[i];
    report_.capture_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // What the method takes from the file of statistics; sets the number of gradients, if it is
  // these.
  std::vector<float> read_stats(const LayerShape& shape, int64_t* samples = nullptr) const {
    const bool gradients = options_.prune.method == PruneMethod::kWoodFisher;
    const TensorView& tensor = stats_->at(shape.name + (gradients ? ".gradients" : ".diagonal"));
    std::vector<int64_t> wanted = {shape.rows, shape.cols};
    if (gradients) wanted.insert(wanted.begin(), tensor.shape.empty() ? 0 : tensor.shape[0]);
    if (gradients && wanted[0] == 0)
      throw FormatError(tensor.file + ": " + tensor.name + " holds no sample");
    if (tensor.shape != wanted || !is_floating_point(tensor.dtype)) {
      throw FormatError(tensor.file + ": " + tensor.name + " is " +
                        std::string(dtype_name(tensor.dtype)) + " " + shape_string(tensor.shape) +
                        ", the layer wants floating-point " + shape_string(wanted));
    }
    if (samples != nullptr && gradients) *samples = wanted[0];
    return tensor.to_f32();
  }

  void prune_linear(Linear& linear, const float* hessian, CheckpointWriter& weights,
                    MaskWriter& masks) {
    const LayerShape& shape = shapes_.at(linear.info.name);
    int64_t samples = 0;
    const std::vector<float> stats = stats_ ? read_stats(shape, &samples) : std::vector<float>();
    PruneProblem problem;
    problem.name = shape.name;
    problem.weight = linear.weight.data_ptr<float>();
    problem.rows = shape.rows;
    problem.cols = shape.cols;
    problem.hessian = hessian;
    if (samples > 0) {
      problem.gradients = stats.data();
      problem.num_gradients = samples;
    } else if (stats_) {
      problem.diagonal = stats.data();
    }
    PruneOptions options = options_.prune;
    if (!sparsity_.empty()) options.pattern.sparsity = sparsity_.at(shape.name);
    PrunedLayer result;
    const PrunedMatrix matrix = prune_layer(problem, options, shape.dtype, result);
    linear.weight = torch::tensor(matrix.weight).view({shape.rows, shape.cols});
    const bool transposed = model_.config().transposed_weights;
    const torch::Tensor values = transposed ? linear.weight.t().contiguous() : linear.weight;
    TensorData stored{{shape.name + ".weight", shape.dtype, values.sizes().vec()}, {}};
    stored.data.resize(stored.num_bytes());
    convert_from_f32(shape.dtype, values.data_ptr<float>(), values.numel(), stored.data.data());
    weights.write(stored);
    masks.write({shape.name, shape.rows, shape.cols}, matrix.mask);
    if (state_) {
      state_->add(
          {shape.name, {std::move(stored)}, matrix.mask, internal::pruned_layer_json(result)});
    }
    report(std::move(result), matrix.mask);
  }

  const PruneModelOptions& options_;
  DecoderModel model_;
  internal::PassOptions pass_;
  std::unique_ptr<SafetensorsFile> stats_;
  std::map<std::string, LayerShape> shapes_;  // of the layers that are pruned
  std::map<std::string, double> sparsity_;    // by layer; empty: that of the pattern
  std::vector<MaskShape> masks_;
  OutputPlan output_;
  std::unique_ptr<internal::RunState> state_;
  PruneReport report_;
};

}  // namespace

bool PruneModelOptions::uses_hessians() const {
  const bool given = prune.method == PruneMethod::kObd && !stats.empty();
  return prune.uses_hessian() && !(given && prune.sweeps == 0);
}

void PruneModelOptions::validate() const {
  prune.validate();
  state.validate(out);
  CaptureOptions::validate(uses_hessians());
  const bool fisher = prune.method == PruneMethod::kWoodFisher;
  if (!stats.empty() && prune.method != PruneMethod::kObd && !fisher) {
    throw UsageError("stats gives diagonals for obd or gradients for woodfisher; the method is " +
                     method_name(prune.method));
  }
  if (stats.empty() && fisher)
    throw UsageError("woodfisher needs stats, a file with NAME.gradients of each layer");
  if (allocation == Allocation::kGlobal && fisher)
    throw UsageError("a global allocation takes diagonals, woodfisher has none");
  if (allocation == Allocation::kGlobal && prune.pattern.structured()) {
    throw UsageError("a global allocation is for unstructured sparsity; " +
                     prune.pattern.describe() + " leaves each layer the same share");
  }
  if (max_shard_bytes < (int64_t{1} << 20)) {
    throw UsageError(format("max-shard-size is %lld bytes, it must be at least 1 MiB",
                            static_cast<long long>(max_shard_bytes)));
  }
}

PruneReport prune_model(const std::string& model, const TokenWindows* calibration,
                        const PruneModelOptions& options, const PruneReportWriter& write_report) {
  options.validate();
  at::set_num_threads(num_threads());
  return ModelPruner(model, calibration, options).run(write_report);
}

}  // namespace curvq
