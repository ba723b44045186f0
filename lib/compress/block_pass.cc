#include "compress/block_pass.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "compress/block_activations.h"
#include "compress/output_gradients.h"
#include "compress/output_target.h"
#include "compress/scratch_file.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/memory.h"
#include "curvq/core/progress.h"

namespace curvq::internal {
namespace {

constexpr char kStream[] = "residual", kOriginal[] = "original_residual";

class BlockPass {
 public:
  BlockPass(const DecoderModel& model, const PassOptions& options, const Wanted& wanted,
            const Compress& compress)
      : model_(model), options_(options), wanted_(wanted), compress_(compress) {}

  double run() {
    const auto start = std::chrono::steady_clock::now();
    const int64_t all = model_.config().num_layers;
    const int64_t layers = options_.num_blocks < 0 ? all : std::min(all, options_.num_blocks);
    const int64_t first = options_.state == nullptr ? 0 : options_.state->finished_blocks();
    if (options_.calibration != nullptr && first < layers) begin(first);
    torch::NoGradGuard no_grad;
    const auto linears = static_cast<int64_t>(linear_shapes(model_).size());
    Progress progress(options_.label, linears);
    progress.advance(linears / all * first);
    for (int64_t layer = first; layer < layers; ++layer) go_through(layer, progress);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() -
           compress_seconds_;
  }

 private:
  void begin(int64_t first) {
    const torch::Tensor ids = window_ids(*options_.calibration);
    if (options_.capture.token_weights || options_.output_factors) find_gradients(ids);
    torch::NoGradGuard no_grad;
    const auto stream = [&](const char* name) {
      return first == 0 ? model_.embed(ids) : options_.state->stream(name);
    };
    activations_ = std::make_unique<BlockActivations>(stream(kStream),
                                                      options_.capture.calibration_activations());
    if (options_.capture.corrects())
      originals_ = std::make_unique<BlockActivations>(stream(kOriginal), Activations::kFloat32);
  }

  void find_gradients(const torch::Tensor& ids) {
    if (options_.state == nullptr || !has_gradients(*options_.state)) {
      std::optional<ScratchFile> factors;
      if (options_.output_factors) factors.emplace(options_.scratch, factor_bytes());
      gradients_ = output_gradients(
          model_, ids, {options_.capture.seed, options_.held_out, options_.capture.gradient_share},
          factors ? &*factors : nullptr);
      model_.release_head();
      if (options_.state != nullptr) save_gradients(*options_.state, gradients_);
    }
    if (options_.state != nullptr) gradients_ = load_gradients(*options_.state);
    return_freed_memory();
  }

  int64_t factor_bytes() const {
    int64_t bytes = 0;
    for (const LayerShape& layer : linear_shapes(model_)) bytes += 4 * layer.rows * layer.rows;
    return options_.held_out > 0 ? 2 * bytes : bytes;
  }

  void go_through(int64_t layer, Progress& progress) {
    DecoderBlock block = model_.load_block(layer);
    const DecoderBlock original = block;  // shares the tensors
    const auto groups = block.linears();
    size_t slot = 0;
    for (size_t group = 0; group < groups.size(); ++group) {
      if (activations_) activations_->advance(block, group);
      if (originals_) originals_->advance(original, group);
      LayerMoments moments;  // shared by the group unless each layer weighs tokens in its own way
      for (Linear* linear : groups[group]) {
        OutputGradients gradients;
        if (!gradients_.empty()) std::swap(gradients, gradients_[layer][slot]);
        if (wanted_(linear->info.name)) {
          find_moments(linear->info, gradients, group % 2 == 1 && adds_plainly(block, group),
                       moments);
          if (originals_) correct(*linear, moments);
          compress(*linear, moments);
        }
        progress.advance(1, linear->info.name);
        ++slot;
      }
    }
    if (activations_ && layer + 1 < model_.config().num_layers) {
      activations_->finish(block);
      if (originals_) originals_->finish(original);
    }
    if (options_.state != nullptr) {
      NamedTensors streams;
      if (activations_) streams.emplace_back(kStream, activations_->residual());
      if (originals_) streams.emplace_back(kOriginal, originals_->residual());
      options_.state->finish_block(streams);
    }
    model_.release_block(layer);
    return_freed_memory();
  }

  // Whether what the layers of `group` give goes into the residual stream as it is.
  static bool adds_plainly(const DecoderBlock& block, size_t group) {
    const Norm& behind = group == 1 ? block.post_attention_norm : block.post_mlp_norm;
    return block.config.residual_scale == 1 && !behind.weight.defined() &&
           (group == 1 || block.mlps.size() == 1);
  }

  // `moments` come from the layer before in the group, or are empty.
  void find_moments(const LinearInfo& info, const OutputGradients& gradients, bool writes_residual,
                    LayerMoments& moments) const {
    if (options_.stats != nullptr) {
      moments.hessian = options_.stats->read(info.name, info.in_features);
      if (options_.output_factors)
        moments.output_factor = options_.stats->read_output_factor(info.name, info.out_features,
                                                                   &moments.factor_shrinkage);
      return;
    }
    if (!activations_) return;
    const bool known =
        options_.hessians ? !moments.hessian.empty() : moments.input_amax.has_value();
    if (!known || options_.capture.token_weights) {
      MomentsWanted wanted{.held_out = options_.held_out};
      wanted.hessian = options_.hessians;
      wanted.input_amax = options_.input_amax;
      wanted.tokens = model_.config().num_experts > 0;
      if (options_.capture.token_weights) wanted.energies = gradients.energies;
      wanted.residual_cross = writes_residual && options_.capture.residual_correction > 0;
      moments = layer_moments(info.name, *activations_, originals_.get(), wanted);
    }
    if (options_.output_factors) {
      moments.output_factor = shrunk_factor(gradients.factor, gradients.samples);
      moments.factor_shrinkage = factor_shrinkage(info.out_features, gradients.samples);
      moments.held_out_factor = gradients.held_out;
    }
  }

  // Moves the layer's weight towards the float layer's outputs.
  void correct(Linear& linear, LayerMoments& moments) const {
    const int64_t k = linear.info.in_features;
    linear.weight = corrected_weight(
        linear.weight, torch::from_blob(moments.hessian.data(), {k, k}), moments.input_cross,
        moments.residual_cross, options_.capture.input_correction,
        options_.capture.residual_correction, std::max(options_.damping, 1e-3));
  }

  void compress(Linear& linear, const LayerMoments& moments) {
    const auto start = std::chrono::steady_clock::now();
    Linear compressed = linear;
    compress_(compressed, moments);
    if (options_.capture.capture == Capture::kSequential) linear = std::move(compressed);
    compress_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  const DecoderModel& model_;
  const PassOptions& options_;
  const Wanted& wanted_;
  const Compress& compress_;
  std::vector<std::vector<OutputGradients>> gradients_;        // by layer and linear
  std::unique_ptr<BlockActivations> activations_, originals_;  // the second where it is corrected
  double compress_seconds_ = 0;
};

}  // namespace

torch::Tensor window_ids(const TokenWindows& windows) {
  torch::Tensor ids = torch::empty({windows.num_windows, windows.length}, torch::kInt64);
  int64_t* out = ids.data_ptr<int64_t>();
  for (size_t i = 0; i < windows.ids.size(); ++i) out[i] = windows.ids[i];
  return ids;
}

std::vector<LayerShape> linear_shapes(const DecoderModel& model) {
  std::vector<LayerShape> shapes;
  for (int64_t i = 0; i < model.config().num_layers; ++i) {
    for (const auto& group : block_linears(model.config(), i)) {
      for (const LinearInfo& linear : group) {
        LayerShape shape{linear.name, linear.out_features, linear.in_features, DType::kBF16};
        if (model.quantization()) shape.stored = model.quantization()->scheme_of(linear.name);
        if (!shape.stored) shape.dtype = model.checkpoint().at(linear.name + ".weight").dtype;
        shapes.push_back(std::move(shape));
      }
    }
  }
  return shapes;
}

int64_t pass_floats(const DecoderConfig& config, const PassOptions& options) {
  int64_t weights = 0, largest = 0, features = config.hidden_size, rows = 0, gradients = 0;
  for (const auto& group : block_linears(config, 0)) {
    for (const LinearInfo& linear : group) {
      weights += linear.in_features * linear.out_features;
      largest = std::max(largest, linear.in_features * linear.out_features);
      features = std::max(features, linear.in_features);
      rows = std::max(rows, linear.out_features);
    }
  }
  int64_t floats = weights;
  if (options.calibration == nullptr && options.stats == nullptr) return floats;
  floats += 5 * features * features;
  // G and twice G in float64, and float64 of D, its transpose and G D
  if (options.output_factors) floats += 6 * rows * rows + 6 * largest;
  if (options.calibration == nullptr) return floats;
  const int64_t tokens = options.calibration->num_windows * options.calibration->length;
  const int64_t streams = options.capture.corrects() ? 2 : 1;
  floats += streams * tokens * (2 * config.hidden_size + features);
  // float64 of a corrected weight and its factor
  if (options.capture.corrects()) floats += 8 * features * features + 4 * largest;
  if (options.capture.token_weights || options.output_factors)
    gradients = gradient_floats(config, options.calibration->length);
  return std::max(floats, gradients);
}

void check_pass(const DecoderModel& model, const PassOptions& options,
                const std::vector<LayerShape>& layers, int64_t predicted_bytes, int64_t max_bytes) {
  const TokenWindows* calibration = options.calibration;
  if (calibration != nullptr && calibration->length > model.config().max_positions) {
    throw UsageError(
        format("%s: windows of %lld tokens exceed the model's %lld positions; set --max-length",
               calibration->origin.c_str(), static_cast<long long>(calibration->length),
               static_cast<long long>(model.config().max_positions)));
  }
  if (max_bytes > 0 && predicted_bytes > max_bytes) {
    throw ResourceError(
        format("about %.2f MiB of tensors would be in memory, --max-memory allows %.2f MiB; %s",
               predicted_bytes / 1048576.0, max_bytes / 1048576.0,
               calibration != nullptr ? "use fewer or shorter calibration windows"
                                      : "the weights of a decoder block need as much"));
  }
  if (calibration == nullptr || !options.hessians) return;
  const int64_t tokens = calibration->num_windows * calibration->length;
  for (const LayerShape& layer : layers) {
    if (layer.cols <= tokens) continue;
    log_warning(format(
        "%lld calibration tokens are fewer than the %lld inputs of %s: most "
        "directions are never seen; use more text",
        static_cast<long long>(tokens), static_cast<long long>(layer.cols), layer.name.c_str()));
    return;
  }
}

std::unique_ptr<RunState> open_state(const StateOptions& options, const DecoderModel& model,
                                     const PassOptions& pass) {
  if (options.directory.empty()) return nullptr;
  std::map<std::string, std::string> inputs = {{"the model", model.checkpoint().content_hash()}};
  if (pass.calibration != nullptr) {
    const TokenWindows& windows = *pass.calibration;
    inputs["the calibration data"] =
        format("%s, %lld windows of %lld", windows.hash.c_str(),
               static_cast<long long>(windows.num_windows), static_cast<long long>(windows.length));
  }
  return std::make_unique<RunState>(options, inputs);
}

double compress_blocks(const DecoderModel& model, const PassOptions& options, const Wanted& wanted,
                       const Compress& compress) {
  return BlockPass(model, options, wanted, compress).run();
}

}  // namespace curvq::internal
