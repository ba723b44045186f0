#include <utility>

#include "curvq/compress/capture.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq {

Activations CaptureOptions::calibration_activations() const {
  if (activations) return *activations;
  if (capture == Capture::kFloat) return Activations::kFloat32;
  return corrects() ? Activations::kInt16 : Activations::kInt8;
}

void CaptureOptions::validate(bool uses_hessians) const {
  if (!(gradient_share > 0 && gradient_share <= 1))
    throw UsageError(
        format("gradient_share is %g, it must be above 0 and at most 1", gradient_share));
  for (const auto& [name, share] : {std::pair("input_correction", input_correction),
                                    std::pair("residual_correction", residual_correction)}) {
    if (!(share >= 0 && share <= 1))
      throw UsageError(format("%s is %g, it must be between 0 and 1", name, share));
    if (share > 0 && (capture != Capture::kSequential || !uses_hessians)) {
      throw UsageError(
          format("%s needs a method with Hessians and sequential capture: it makes up for layers "
                 "that are already compressed",
                 name));
    }
  }
}

}  // namespace curvq
