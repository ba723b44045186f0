// How much memory a model takes and how many tokens a second it makes, before it is run: by what is
// measured here of kernels, and by data sheets of machines that are not here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "curvq/kernels/linear.h"
#include "curvq/kernels/machine_limits.h"

namespace curvq {

struct SpeedPlanOptions {
  int64_t prompt_tokens = 512;                    // that are read at once; 1 or more
  int64_t context_tokens = 512;                   // that a new token sees; 1 or more
  InputRounding rounding = InputRounding::kNone;  // of inputs to 4-bit layers
  std::optional<Scheme> scheme;  // what plain linear layers would become; as they are if not set

  // Throws UsageError naming field, value and bound.
  void validate(int64_t max_positions) const;
};

// Layers that are alike, of all blocks; or the output head.
struct LayerSpeed {
  std::string name, format;  // "self_attn.q_proj", "lm_head"; "nvfp4", "float32"
  int64_t count = 0, rows = 0, cols = 0;
  int64_t bytes = 0;  // of all of them in memory
  double decode_seconds = 0, prefill_seconds = 0;
  // memory where at least 80 % of the read bandwidth is reached, else arithmetic.
  std::string decode_bound = {}, prefill_bound = {};
};

struct MachineSpeed {
  std::string machine;
  int64_t memory_bytes = 0;  // that the machine has; 0: not known
  int64_t needed_bytes = 0;  // weights, keys and values
  double decode_tokens_per_second = 0, prefill_tokens_per_second = 0;
  std::string decode_bound, prefill_bound;  // of most of the time: memory, arithmetic, other
};

struct SpeedPlan {
  MachineLimits limits;            // of this machine
  std::vector<LayerSpeed> layers;  // on this machine
  // What all blocks take beside their products: norms, RoPE, attention, residual stream.
  double decode_other_seconds = 0, prefill_other_seconds = 0;
  std::vector<MachineSpeed> machines;  // this one first
};

// Times, for each format and shape of a linear layer, its matrix with one row and with the
// prompt's, and one block without its products; everything else follows by bytes and operations.
// Named machines (H100, H200, B200, RTX 5090, a laptop) take the larger of bytes over their
// bandwidth and operations over their rate, float32 layers as 16 bits: no program is faster. Takes
// some seconds. Throws as DecoderModel's constructor.
SpeedPlan plan_speed(const std::string& model, const SpeedPlanOptions& options);

}  // namespace curvq
