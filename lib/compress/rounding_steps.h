// What each step of a layer's rounding did to its objective.
#pragma once

#include <string>
#include <vector>

#include "curvq/compress/quantize.h"

namespace curvq::internal {

// Measures RoundingSteps by the factors of a problem, which must outlive it.
class RoundingSteps {
 public:
  explicit RoundingSteps(const LayerProblem& problem);

  void add(const std::string& name, const QuantizedMatrix& matrix);
  // Sweeps with the problem's own H and G that ended at `matrix`: `objectives` as refine() returns.
  void add_sweeps(const std::vector<double>& objectives, const QuantizedMatrix& matrix);

  const std::vector<RoundingStep>& all() const { return steps_; }

 private:
  double calibration(const float* d) const;
  double held_out(const float* d) const;
  std::vector<float> error_of(const QuantizedMatrix& matrix) const;

  const LayerProblem& problem_;
  double whole_ = 0, held_out_whole_ = 0;
  std::vector<RoundingStep> steps_;
};

}  // namespace curvq::internal
