// The Kronecker factors that a bit plan predicts by.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "compress/scratch_file.h"
#include "curvq/compress/layer_plan.h"
#include "curvq/io/token_windows.h"
#include "curvq/nn/decoder.h"

namespace curvq::internal {

struct PlanFactors {
  torch::Tensor a, g;  // [cols, cols], [rows, rows] float32, contiguous
};

// A = E[x x^T] and G = E[g g^T] of layers: of tokens, whose labels are drawn from the model's own
// distribution at every position, so that they are those of KL over all positions; or of a file.
class PlanFactorSource {
 public:
  // All layers' factors wait in a file without a name in `scratch`.
  PlanFactorSource(const DecoderModel& model, const TokenWindows& windows, int64_t draws,
                   uint64_t seed, const std::vector<LayerShape>& layers,
                   const std::string& scratch);
  // Throws FormatError if the file belongs to another model or lacks a layer's factors.
  PlanFactorSource(const DecoderModel& model, const std::string& stats,
                   const std::vector<LayerShape>& layers);

  PlanFactors read(const LayerShape& layer) const;
  int64_t tokens() const { return tokens_; }  // label draws included

 private:
  std::map<std::string, PlanFactors> factors_;
  std::string stats_;
  int64_t tokens_ = 0;
};

}  // namespace curvq::internal
