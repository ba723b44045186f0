// What a quantized checkpoint will hold, known before the first layer is rounded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "curvq/compress/quantize.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/compressed_tensors.h"

namespace curvq {

struct OutputPlan {
  std::vector<TensorInfo> tensors;        // all of the new checkpoint
  std::vector<const TensorView*> copied;  // those taken over unchanged
  int64_t original_bytes = 0, stored_bytes = 0;
};

// Quantized layers' weights become several tensors, everything else is copied.
OutputPlan plan_output(const Checkpoint& source, const std::vector<PlannedLayer>& layers);

// The quantization_config that describes the plan; `untouched` (e.g. "lm_head") is listed as
// ignored whether or not it is a tensor of its own.
QuantizationConfig describe_plan(const std::vector<PlannedLayer>& layers,
                                 const std::vector<std::string>& untouched);

// Reads every floating-point tensor once. Throws NumericalError naming file, tensor and element for
// a value that is not finite. Returns the largest magnitude over the layers of each fused group
// (see fused_group_key) that the plan quantizes, by group key.
std::map<std::string, float> scan_weights(const Checkpoint& source,
                                          const std::vector<PlannedLayer>& layers);

}  // namespace curvq
