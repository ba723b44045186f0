#include "compress/time_estimate.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/io/compressed_tensors.h"

namespace curvq::internal {
namespace {

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

RunTime operator*(double times, const RunTime& t) {
  return {times * t.seconds, times * t.cpu_seconds};
}
// What cannot be less than nothing, where clocks are coarse.
RunTime operator-(const RunTime& a, const RunTime& b) {
  return {std::max(0.0, a.seconds - b.seconds), std::max(0.0, a.cpu_seconds - b.cpu_seconds)};
}

// As often as it takes for clocks to tell; the first time, which touches new memory, aside.
RunTime mean_time_of(const std::function<void()>& work) {
  constexpr double kEnough = 0.01;
  const RunTime first = time_of(work);
  if (first.seconds > 10 * kEnough) return first;
  int64_t times = 0;
  const RunTime all = time_of([&] {
    const double begin = process_seconds();
    do {
      work();
      ++times;
    } while (process_seconds() - begin < kEnough);
  });
  return (1.0 / static_cast<double>(times)) * all;
}

// A layer of random weights and inputs, with all that `options` look at.
class Probe {
 public:
  Probe(int64_t rows, int64_t cols, const Scheme& scheme, const QuantizeOptions& options)
      : options_(options) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    weight_ = torch::randn({rows, cols}, generator) * 0.02;
    problem_.name = "probe";
    problem_.weight = weight_.data_ptr<float>();
    problem_.rows = rows;
    problem_.cols = cols;
    problem_.scheme = scheme;
    problem_.tensor_amax = weight_.abs().max().item<float>();
    if (!options.uses_hessians()) return;
    inputs_ = torch::randn({2 * cols, cols}, generator);
    hessian_ = inputs_.t().matmul(inputs_) / static_cast<double>(cols);
    problem_.hessian = hessian_.data_ptr<float>();
    problem_.inputs = inputs_.data_ptr<float>();
    problem_.num_inputs = inputs_.size(0);
    const bool judged = options.held_out > 0;
    if (judged) problem_.held_out_hessian = problem_.hessian;
    if (!options.output_factor) return;
    factor_ = torch::eye(rows);
    problem_.output_factor = factor_.data_ptr<float>();
    if (judged) problem_.held_out_factor = problem_.output_factor;
  }

  // Rounds it, and does what is done with a rounded layer.
  void run() {
    LayerResult result;
    std::vector<uint8_t> mask;
    const QuantizedMatrix matrix =
        quantize_layer(problem_, options_, result, options_.prune ? &mask : nullptr);
    const std::vector<TensorData> tensors = compressed_tensors_pack(problem_.name, matrix);
    std::vector<float> values(weight_.numel());
    dequantize(matrix, values.data());
  }

 private:
  const QuantizeOptions& options_;
  torch::Tensor weight_, inputs_, hessian_, factor_;
  LayerProblem problem_;
};

// Of a layer with probe.cols inputs: at once, and by the row.
struct LayerTime {
  int64_t cols = 0;
  RunTime once, row;
};

LayerTime layer_time(const PlannedLayer& layer, int64_t most_rows, const QuantizeOptions& options) {
  Scheme scheme = *layer.scheme;
  scheme.inputs = InputFormat::kNone;
  const int64_t unit = std::max<int64_t>(1, scheme.group_size);
  const int64_t cols =
      layer.cols <= kProbeInputs ? layer.cols : std::max<int64_t>(1, kProbeInputs / unit) * unit;
  // Strips of 64 rows go together.
  const int64_t more = std::min<int64_t>(256, most_rows), few = std::max<int64_t>(1, more / 4);
  const auto measured = [&](int64_t rows) {
    Probe probe(rows, cols, scheme, options);
    return mean_time_of([&] { probe.run(); });
  };
  LayerTime time;
  time.cols = cols;
  const RunTime large = measured(more);
  if (more > few) time.row = (1.0 / static_cast<double>(more - few)) * (large - measured(few));
  time.once = large - static_cast<double>(more) * time.row;
  return time;
}

TokenWindows shortened(const TokenWindows& windows, int64_t length) {
  TokenWindows out = windows;
  out.ids.clear();
  out.length = std::min(windows.length, length);
  for (int64_t i = 0; i < windows.num_windows; ++i)
    out.ids.insert(out.ids.end(), windows.window(i), windows.window(i) + out.length);
  return out;
}

// Of a block and one token.
double token_operations(const DecoderConfig& config) {
  double operations = 0;
  const double share = config.num_experts > 0 ? static_cast<double>(config.experts_per_token) /
                                                    static_cast<double>(config.num_experts)
                                              : 1.0;
  const auto groups = block_linears(config, 0);
  for (size_t group = 0; group < groups.size(); ++group) {
    double of_group = static_cast<double>(groups[group][0].in_features) *
                      static_cast<double>(groups[group][0].in_features);
    for (const LinearInfo& linear : groups[group])
      of_group += 2.0 * static_cast<double>(linear.in_features * linear.out_features);
    operations += (group < 2 ? 1 : share) * of_group;
  }
  return operations;
}

}  // namespace

RunTime time_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = process_seconds();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          process_seconds() - cpu};
}

RunTime rounding_time(const std::vector<PlannedLayer>& plan, const QuantizeOptions& options) {
  std::map<std::pair<int64_t, std::string>, std::vector<const PlannedLayer*>> alike;
  for (const PlannedLayer& layer : plan) {
    if (layer.scheme) alike[{layer.cols, layer.scheme->describe()}].push_back(&layer);
  }
  RunTime total;
  for (const auto& [key, layers] : alike) {
    int64_t most_rows = 0;
    for (const PlannedLayer* layer : layers) most_rows = std::max(most_rows, layer->rows);
    const LayerTime time = layer_time(*layers.front(), most_rows, options);
    const double wider = static_cast<double>(key.first) / static_cast<double>(time.cols);
    const double by_row = options.uses_hessians() ? wider * wider : wider;
    const double once = options.uses_hessians() ? by_row * wider : wider;
    for (const PlannedLayer* layer : layers)
      total = total + once * time.once + by_row * static_cast<double>(layer->rows) * time.row;
  }
  return total;
}

RunTime pass_time(const DecoderModel& model, const PassOptions& pass, const Wanted& wanted,
                  const Compress& use) {
  const auto layers = static_cast<double>(model.config().num_layers);
  const RunTime load = time_of([&] { model.load_block(0); });
  if (pass.calibration == nullptr && pass.stats == nullptr) return layers * load;
  PassOptions first = pass;
  first.num_blocks = 1;
  first.label = "estimating the time";
  first.state = nullptr;
  first.output_factors = first.capture.token_weights = false;
  double more_tokens = 1, more_passes = 0;
  TokenWindows windows;
  if (pass.calibration != nullptr) {
    const double most = std::max(64.0, kProbeOperations / token_operations(model.config()));
    windows = shortened(*pass.calibration, static_cast<int64_t>(most));
    const auto fitting = static_cast<int64_t>(most) / windows.length;
    windows = window_range(windows, 0, std::clamp<int64_t>(fitting, 1, windows.num_windows));
    first.calibration = &windows;
    first.held_out = 0;
    more_tokens = static_cast<double>(pass.calibration->num_windows * pass.calibration->length) /
                  static_cast<double>(windows.num_windows * windows.length);
    if (pass.output_factors || pass.capture.token_weights)
      more_passes = 3 * pass.capture.gradient_share;
  }
  RunTime inside;
  const RunTime all = time_of([&] {
    compress_blocks(model, first, wanted, [&](Linear& linear, const LayerMoments& moments) {
      inside = inside + time_of([&] { use(linear, moments); });
    });
  });
  const RunTime of_tokens = all - inside - load;
  return layers * (load + (1 + more_passes) * more_tokens * of_tokens);
}

RunTime copy_time(const Checkpoint& checkpoint) {
  constexpr int64_t kSample = int64_t{16} << 20;
  int64_t all = 0, sampled = 0;
  for (const TensorView* tensor : checkpoint.tensors()) all += tensor->num_elements();
  const RunTime time = time_of([&] {
    std::vector<float> values;
    for (const TensorView* tensor : checkpoint.tensors()) {
      if (sampled >= kSample || !is_floating_point(tensor->dtype)) continue;
      const int64_t count = std::min(tensor->num_elements(), kSample - sampled);
      values.resize(static_cast<size_t>(count));
      tensor->read_f32(0, count, values.data());
      max_abs(values.data(), count);
      sampled += count;
    }
  });
  return sampled == 0 ? RunTime() : static_cast<double>(all) / static_cast<double>(sampled) * time;
}

}  // namespace curvq::internal
