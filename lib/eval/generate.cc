#include "curvq/eval/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

// A token drawn from softmax(logits / temperature), cut to the smallest set of mass top_p.
int32_t sample(const float* logits, int64_t count, const GenerateOptions& options,
               std::mt19937_64& random) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<double> weight(count);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    weight[i] =
        std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / options.temperature);
    total += weight[i];
  }
  int64_t kept = 0;
  double mass = 0;
  while (kept < count && mass < options.top_p * total) mass += weight[kept++];
  // 53 random bits, so that the draw is the same with every standard library.
  double target = static_cast<double>(random() >> 11) * 0x1.0p-53 * mass;
  for (int64_t i = 0; i < kept; ++i) {
    target -= weight[i];
    if (target < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace

void GenerateOptions::validate() const {
  if (max_new_tokens < 1) {
    throw UsageError(format("max-new-tokens is %lld, it must be 1 or more",
                            static_cast<long long>(max_new_tokens)));
  }
  if (!(temperature >= 0) || !std::isfinite(temperature)) {
    throw UsageError(
        format("temperature is %g, it must be a finite number of 0 or more", temperature));
  }
  if (!(top_p > 0) || top_p > 1)
    throw UsageError(format("top-p is %g, it must be above 0 and at most 1", top_p));
}

GenerateResult generate(std::shared_ptr<const DecoderModel> model,
                        const std::vector<int32_t>& prompt, const GenerateOptions& options,
                        const std::function<void(int32_t)>& on_token) {
  using Clock = std::chrono::steady_clock;
  options.validate();
  at::set_num_threads(num_threads());
  const int64_t positions = model->config().max_positions;
  DecoderSession session(model);
  std::mt19937_64 random(options.seed);
  GenerateResult result;
  Clock::time_point start = Clock::now();
  torch::Tensor logits = session.append(prompt);
  result.prefill_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  start = Clock::now();
  while (true) {
    const float* values = logits.data_ptr<float>();
    const int64_t count = logits.size(0);
    if (!std::all_of(values, values + count, [](float v) { return std::isfinite(v); })) {
      throw NumericalError(format("%s: the logits behind token %lld are not finite",
                                  model->checkpoint().path().c_str(),
                                  static_cast<long long>(session.length())));
    }
    const int32_t id =
        options.temperature > 0
            ? sample(values, count, options, random)
            : static_cast<int32_t>(std::max_element(values, values + count) - values);
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) {
      result.stopped = true;
      break;
    }
    result.ids.push_back(id);
    if (on_token) on_token(id);
    if (static_cast<int64_t>(result.ids.size()) == options.max_new_tokens ||
        session.length() == positions)
      break;
    logits = session.append({id});
  }
  result.decode_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

}  // namespace curvq
