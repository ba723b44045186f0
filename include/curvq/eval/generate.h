// Text from a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace curvq {

class DecoderModel;

struct GenerateOptions {
  int64_t max_new_tokens = 256;  // 1 or more; generation also ends at the model's last position
  double temperature = 0;        // 0: greedy; else logits are divided by it
  double top_p = 1;              // sample from the smallest set of tokens with this mass; (0, 1]
  uint64_t seed = 0;
  std::vector<int32_t> stop_ids;  // generation ends at any of these (not returned)

  void validate() const;  // throws UsageError naming field, value and bound
};

struct GenerateResult {
  std::vector<int32_t> ids;  // new ones only
  double prefill_seconds = 0, decode_seconds = 0;
  bool stopped = false;  // a stop id came
};

// `on_token` (may be empty) is called with each new id. Deterministic for a seed.
GenerateResult generate(std::shared_ptr<const DecoderModel> model,
                        const std::vector<int32_t>& prompt, const GenerateOptions& options,
                        const std::function<void(int32_t)>& on_token = {});

}  // namespace curvq
