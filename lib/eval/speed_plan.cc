#include "curvq/eval/speed_plan.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/kernels/dense.h"
#include "curvq/kernels/gemm_bench.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

constexpr int kRounds = 5;
// Of many rows a product's rate does not change any more.
constexpr int64_t kMostRows = 512;

// Data sheets: bytes a second, dense 16-bit operations a second, bytes of memory.
struct NamedMachine {
  const char* name;
  double read_bytes, ops;
  int64_t memory_bytes;
};
constexpr NamedMachine kNamedMachines[] = {
    {"H100 SXM", 3.35e12, 989e12, int64_t{80} << 30},
    {"H200", 4.8e12, 989e12, int64_t{141} << 30},
    {"B200", 8.0e12, 2250e12, int64_t{180} << 30},
    {"RTX 5090", 1.792e12, 209.5e12, int64_t{32} << 30},
    // Eight cores at 4 GHz with two AVX2 units, 128 bits of LPDDR5X-7500.
    {"laptop", 120e9, 8 * 4e9 * 32, int64_t{32} << 30},
};

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Processor seconds of all threads over their number, the best of some rounds.
double best_seconds(const std::function<void()>& work) {
  work();
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    int64_t times = 0;
    const double begin = process_seconds();
    do {
      work();
      ++times;
    } while (process_seconds() - begin < 0.02);
    best = std::min(best, (process_seconds() - begin) / static_cast<double>(times) / num_threads());
  }
  return best;
}

constexpr const char *kFloat32 = "float32", *kBFloat16 = "bfloat16";

// What a matrix of a format does: bytes of it a second for one row, operations for many.
struct Rates {
  double bytes, ops;
};

Rates measure_dense(int64_t n, int64_t k, int64_t rows) {
  const torch::Tensor weight = torch::randn({n, k});
  const auto seconds = [&](int64_t m) {
    const torch::Tensor x = torch::randn({m, k});
    return best_seconds([&] { torch::linear(x, weight); });
  };
  const double values = static_cast<double>(n) * static_cast<double>(k);
  return {4 * values / seconds(1), 2 * static_cast<double>(rows) * values / seconds(rows)};
}

Rates measure_bf16(int64_t n, int64_t k) {
  const std::vector<uint16_t> weight(n * k, 0x3f80);
  const std::vector<float> x(k, 1);
  std::vector<float> out(n);
  const double seconds =
      best_seconds([&] { gemv_bf16(weight.data(), n, k, x.data(), out.data()); });
  const double values = static_cast<double>(n) * static_cast<double>(k);
  return {2 * values / seconds, 2 * values / seconds};
}

// Decoding reads `model_bytes` before it reads a matrix again: caches help here as they help there.
Rates measure_packed(const Scheme& scheme, InputRounding rounding, int64_t n, int64_t k,
                     int64_t rows, int64_t model_bytes) {
  GemmBenchOptions options;
  options.shapes = {{1, n, k}, {rows, n, k}};
  options.schemes = {scheme};
  options.roundings = {has_input_rounding(scheme, rounding) ? rounding : InputRounding::kNone};
  options.rounds = kRounds;
  options.rotated_bytes = std::min(model_bytes, bytes_beyond_caches());
  const GemmBench bench = bench_gemm(options);
  return {bench.rows[0].weight_gbps() * 1e9, bench.rows[1].gflops() * 1e9};
}

// Seconds of one block for `tokens` new ones that see `context`, its products given.
double time_rest_of_block(const DecoderModel& model, int64_t tokens, int64_t context) {
  torch::NoGradGuard no_grad;
  const DecoderConfig& config = model.config();
  DecoderBlock block = model.load_block(0);
  for (const auto& group : block.linears()) {
    for (Linear* linear : group) {
      linear->prepacked.reset();
      linear->weight = torch::empty({0});
      linear->product = torch::randn({1, tokens, linear->info.out_features});
    }
  }
  const torch::Tensor x = torch::randn({1, tokens, config.hidden_size});
  KeyValueCache cache;
  cache.keys = torch::zeros({config.num_kv_heads, context, config.head_dim});
  cache.values = torch::zeros_like(cache.keys);
  return best_seconds([&] {
    cache.length = context - tokens;
    block.forward(x, &cache);
  });
}

// The layers of block 0 and the head, with their formats; the others are alike.
std::vector<LayerSpeed> layers_of(const DecoderModel& model, const SpeedPlanOptions& options,
                                  std::vector<std::optional<Scheme>>& schemes) {
  const DecoderConfig& config = model.config();
  std::vector<LayerSpeed> layers;
  std::map<std::string, size_t> places;
  for (int64_t block = 0; block < config.num_layers; ++block) {
    for (const auto& group : block_linears(config, block)) {
      for (const LinearInfo& info : group) {
        std::optional<Scheme> scheme;
        if (model.quantization()) scheme = model.quantization()->scheme_of(info.name);
        if (!scheme && options.scheme && options.scheme->divides(info.in_features))
          scheme = options.scheme;
        const std::string name = info.name.substr(config.names.block(block).size());
        const std::string form = scheme ? scheme->describe() : kFloat32;
        const auto [place, is_new] = places.try_emplace(name + " " + form, layers.size());
        if (is_new) {
          layers.push_back({name, form, 0, info.out_features, info.in_features});
          schemes.push_back(scheme);
        }
        LayerSpeed& layer = layers[place->second];
        ++layer.count;
        layer.bytes +=
            scheme ? scheme->stored_bytes(layer.rows, layer.cols) : 4 * layer.rows * layer.cols;
      }
    }
  }
  const bool narrow = model.has_bf16_head();
  layers.push_back({"lm_head", narrow ? kBFloat16 : kFloat32, 1, config.vocab_size,
                    config.hidden_size, (narrow ? 2 : 4) * config.vocab_size * config.hidden_size});
  schemes.push_back(std::nullopt);
  return layers;
}

void time_layers(const std::vector<std::optional<Scheme>>& schemes, const SpeedPlanOptions& options,
                 SpeedPlan& plan) {
  const int64_t rows = std::min(options.prompt_tokens, kMostRows);
  int64_t model_bytes = 0;
  for (const LayerSpeed& layer : plan.layers) model_bytes += layer.bytes;
  std::map<std::tuple<std::string, int64_t, int64_t>, Rates> rates;  // of a format and a shape
  constexpr double kNear = 0.8;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    LayerSpeed& layer = plan.layers[i];
    const auto [known, is_new] = rates.try_emplace({layer.format, layer.rows, layer.cols}, Rates{});
    Rates& rate = known->second;
    if (is_new) {
      rate = schemes[i] ? measure_packed(*schemes[i], options.rounding, layer.rows, layer.cols,
                                         rows, model_bytes)
             : layer.format == kBFloat16 ? measure_bf16(layer.rows, layer.cols)
                                         : measure_dense(layer.rows, layer.cols, rows);
    }
    const bool head = layer.name == "lm_head";  // of the prompt only its last token
    const double tokens = head ? 1 : static_cast<double>(options.prompt_tokens);
    const double values =
        static_cast<double>(layer.count * layer.rows) * static_cast<double>(layer.cols);
    layer.decode_seconds = static_cast<double>(layer.bytes) / rate.bytes;
    layer.prefill_seconds = tokens == 1 ? layer.decode_seconds : 2 * tokens * values / rate.ops;
    layer.decode_bound = rate.bytes >= kNear * plan.limits.read_bytes ? "memory" : "arithmetic";
    layer.prefill_bound = tokens == 1 ? layer.decode_bound : "arithmetic";
  }
}

// Adds up times by what bounds them.
class Bounds {
 public:
  void add(const std::string& bound, double seconds) {
    seconds_[bound] += seconds, total_ += seconds;
  }
  double total() const { return total_; }
  std::string most() const {
    return std::max_element(seconds_.begin(), seconds_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

 private:
  std::map<std::string, double> seconds_;
  double total_ = 0;
};

void finish(const SpeedPlanOptions& options, const Bounds& decode, const Bounds& prefill,
            MachineSpeed& machine) {
  machine.decode_tokens_per_second = 1 / decode.total();
  machine.prefill_tokens_per_second = static_cast<double>(options.prompt_tokens) / prefill.total();
  machine.decode_bound = decode.most(), machine.prefill_bound = prefill.most();
}

// Bytes of keys and values of one token.
double cache_bytes(const DecoderConfig& config, int64_t element_bytes) {
  return static_cast<double>(2 * config.num_layers * config.num_kv_heads * config.head_dim *
                             element_bytes);
}

MachineSpeed this_machine(const DecoderConfig& config, const SpeedPlanOptions& options,
                          const SpeedPlan& plan) {
  MachineSpeed machine;
  machine.machine = "this machine";
  machine.memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  const int64_t tokens = std::max(options.context_tokens, options.prompt_tokens);
  machine.needed_bytes = static_cast<int64_t>(cache_bytes(config, 4) * static_cast<double>(tokens));
  Bounds decode, prefill;
  for (const LayerSpeed& layer : plan.layers) {
    machine.needed_bytes += layer.bytes;
    decode.add(layer.decode_bound, layer.decode_seconds);
    prefill.add(layer.prefill_bound, layer.prefill_seconds);
  }
  decode.add("other", plan.decode_other_seconds);
  prefill.add("other", plan.prefill_other_seconds);
  finish(options, decode, prefill, machine);
  return machine;
}

MachineSpeed named_machine(const NamedMachine& named, const DecoderConfig& config,
                           const SpeedPlanOptions& options, const SpeedPlan& plan) {
  MachineSpeed machine;
  machine.machine = named.name, machine.memory_bytes = named.memory_bytes;
  const int64_t tokens = std::max(options.context_tokens, options.prompt_tokens);
  const double context = cache_bytes(config, 2) * static_cast<double>(options.context_tokens);
  machine.needed_bytes = static_cast<int64_t>(cache_bytes(config, 2) * static_cast<double>(tokens));
  Bounds decode, prefill;
  const auto add = [&](Bounds& to, double bytes, double ops) {
    const double memory = bytes / named.read_bytes, arithmetic = ops / named.ops;
    to.add(memory >= arithmetic ? "memory" : "arithmetic", std::max(memory, arithmetic));
  };
  for (const LayerSpeed& layer : plan.layers) {
    const int64_t stored = layer.format == kFloat32 ? layer.bytes / 2 : layer.bytes;
    machine.needed_bytes += stored;
    const double ops =
        2.0 * static_cast<double>(layer.count * layer.rows) * static_cast<double>(layer.cols);
    const bool head = layer.name == "lm_head";
    add(decode, static_cast<double>(stored), ops);
    add(prefill, static_cast<double>(stored),
        ops * (head ? 1.0 : static_cast<double>(options.prompt_tokens)));
  }
  const double width =
      static_cast<double>(4 * config.num_layers * config.num_heads * config.head_dim);
  const double prompt = static_cast<double>(options.prompt_tokens);
  add(decode, context, width * static_cast<double>(options.context_tokens));
  add(prefill, cache_bytes(config, 2) * prompt, width * prompt * prompt / 2);
  finish(options, decode, prefill, machine);
  return machine;
}

}  // namespace

void SpeedPlanOptions::validate(int64_t max_positions) const {
  const auto check = [&](const char* name, int64_t value) {
    if (value >= 1 && value <= max_positions) return;
    throw UsageError(format("%s is %lld, it must be from 1 to the model's %lld positions", name,
                            static_cast<long long>(value), static_cast<long long>(max_positions)));
  };
  check("prompt-tokens", prompt_tokens);
  check("context-tokens", context_tokens);
}

SpeedPlan plan_speed(const std::string& path, const SpeedPlanOptions& options) {
  const DecoderModel model(path);
  const DecoderConfig& config = model.config();
  config.require_head("planning the speed of generation");
  options.validate(config.max_positions);
  torch::NoGradGuard no_grad;
  at::set_num_threads(num_threads());
  SpeedPlan plan;
  plan.limits = measure_machine_limits();
  std::vector<std::optional<Scheme>> schemes;
  plan.layers = layers_of(model, options, schemes);
  time_layers(schemes, options, plan);
  const double blocks = static_cast<double>(config.num_layers);
  plan.decode_other_seconds = blocks * time_rest_of_block(model, 1, options.context_tokens);
  plan.prefill_other_seconds =
      blocks * time_rest_of_block(model, options.prompt_tokens, options.prompt_tokens);
  plan.machines.push_back(this_machine(config, options, plan));
  for (const NamedMachine& named : kNamedMachines)
    plan.machines.push_back(named_machine(named, config, options, plan));
  return plan;
}

}  // namespace curvq
