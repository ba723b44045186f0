#include <utility>

#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq {

Activations QuantizeOptions::calibration_activations() const {
  if (activations) return *activations;
  if (capture == Capture::kFloat) return Activations::kFloat32;
  return input_correction > 0 || residual_correction > 0 ? Activations::kInt16 : Activations::kInt8;
}

void QuantizeOptions::validate() const {
  gptq.validate();
  refine.validate();
  for (const auto& [name, share] : {std::pair("input_correction", input_correction),
                                    std::pair("residual_correction", residual_correction)}) {
    if (!(share >= 0 && share <= 1))
      throw UsageError(format("%s is %g, it must be between 0 and 1", name, share));
    if (share > 0 && (capture != Capture::kSequential || method == Method::kRtn)) {
      throw UsageError(
          format("%s needs gptq with sequential capture: it makes up for layers that "
                 "are already quantized",
                 name));
    }
  }
  if (output_factor && (refine.sweeps == 0 || method == Method::kRtn))
    throw UsageError("output_factor needs gptq and at least one sweep, which is what uses it");
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
