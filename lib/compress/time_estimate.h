// How long a run will take, from pieces of it that are tried.
#pragma once

#include <functional>
#include <vector>

#include "compress/block_pass.h"
#include "curvq/compress/quantize.h"

namespace curvq {

inline RunTime operator+(const RunTime& a, const RunTime& b) {
  return {a.seconds + b.seconds, a.cpu_seconds + b.cpu_seconds};
}

namespace internal {

// The time that `work` takes, by the wall and by the process.
RunTime time_of(const std::function<void()>& work);

// Rounding of all planned layers. For each number of inputs two layers of random weights, of few
// rows and at most kProbeInputs inputs, go through quantize_layer(); their times give what a layer
// costs at once and by the row, which grow with the cube and with the square of its inputs.
RunTime rounding_time(const std::vector<PlannedLayer>& plan, const QuantizeOptions& options);

// What comes before and between the layers: the first block goes through compress_blocks() with as
// many tokens as kProbeOperations allow, and stands for all of them and for all tokens. Gradients
// count as three passes. `use` replaces a layer by what rounding makes of it.
RunTime pass_time(const DecoderModel& model, const PassOptions& pass, const Wanted& wanted,
                  const Compress& use);

// Reading and writing a checkpoint once, from some of its tensors.
RunTime copy_time(const Checkpoint& checkpoint);

inline constexpr int64_t kProbeInputs = 768;
inline constexpr double kProbeOperations = 8e9;

}  // namespace internal
}  // namespace curvq
