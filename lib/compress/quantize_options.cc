#include <algorithm>
#include <cmath>

#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq {

bool QuantizeOptions::uses_hessians() const {
  return method == Method::kGptq || (prune && prune->uses_hessian());
}

int64_t QuantizeOptions::held_out_windows(int64_t windows) const {
  if (held_out == 0 || windows < 2) return 0;
  return std::clamp<int64_t>(std::llround(held_out * static_cast<double>(windows)), 1, windows - 1);
}

void QuantizeOptions::validate() const {
  gptq.validate();
  refine.validate();
  if (prune) prune->validate();
  state.validate(out);
  CaptureOptions::validate(uses_hessians());
  if (output_factor && (refine.sweeps == 0 || method == Method::kRtn))
    throw UsageError("output_factor needs gptq and at least one sweep, which is what uses it");
  if (inverse_of_inputs && (method == Method::kRtn || gptq.diagonal || !(gptq.damping > 0)))
    throw UsageError("a Sherman-Morrison inverse needs gptq or obs, and a damping above 0");
  if (!(held_out >= 0 && held_out < 1))
    throw UsageError(format("held_out is %g, it must be at least 0 and below 1", held_out));
  if (held_out > 0 && !output_factor)
    throw UsageError("held_out needs output_factor: its tokens judge what the sweeps did with it");
  plan.scheme.validate();
  if (max_shard_bytes < (int64_t{1} << 20)) {
    throw UsageError(format("max-shard-size is %lld bytes, it must be at least 1 MiB",
                            static_cast<long long>(max_shard_bytes)));
  }
}

}  // namespace curvq
