// What each step of a layer's rounding did to its objective.
#pragma once

#include <string>
#include <vector>

#include "curvq/compress/quantize.h"

namespace curvq::internal {

// Measures RoundingSteps by the factors of a problem, which must outlive it, and by `hessian`, what
// its rounding takes for H.
class RoundingSteps {
 public:
  RoundingSteps(const LayerProblem& problem, const float* hessian);

  void add(const std::string& name, const QuantizedMatrix& matrix);
  // Sweeps with this H and the problem's G that ended at `matrix`: `objectives` as refine()
  // returns.
  void add_sweeps(const std::vector<double>& objectives, const QuantizedMatrix& matrix);

  const std::vector<RoundingStep>& all() const { return steps_; }

 private:
  void add(const std::string& name, const QuantizedMatrix& matrix, const double* objective);
  double calibration(const float* d) const;
  double held_out(const float* d) const;

  const LayerProblem& problem_;
  const float* hessian_;
  double whole_ = 0, held_out_whole_ = 0;
  std::vector<RoundingStep> steps_;
};

}  // namespace curvq::internal
