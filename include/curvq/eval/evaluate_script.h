// How well a TorchScript module does on labelled data, and how far it is from another.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "curvq/nn/script_model.h"

namespace curvq {

struct ScriptEvalResult {
  int64_t samples = 0;
  int64_t terms = 0;        // targets that count: not negative, if integers
  bool classifies = false;  // the targets are integers
  // Classes: the cross entropy in nats, and the share of targets with the largest output.
  // Otherwise: the squared error, mean over all outputs; no accuracy.
  double loss = 0, loss_stderr = 0, accuracy = 0;
  bool has_reference = false;
  double reference_loss = 0;
  // Classes, over all positions: KL(reference || model) in nats, and the share of equal largest
  // outputs. Otherwise the mean squared difference of the outputs.
  double kl_mean = 0, kl_stderr = 0, top1_agreement = 0, squared_difference = 0;
};

// outputs = forward(x), in chunks of samples, which it must not depend on:
//   y int64 [n, ...]             classes; outputs [n, ..., classes]; a negative one does not count
//   y floating-point [n, ...]    targets; outputs of the same shape
// Standard errors are those of means of independent terms; NaN for one. Computed from the outputs
// in float64. Throws UsageError for shapes or classes that do not fit, NumericalError for x, y or
// outputs that are not finite, and what ScriptModel::forward() throws.
ScriptEvalResult evaluate_script(const ScriptModel& model, const torch::Tensor& x,
                                 const torch::Tensor& y, const ScriptModel* reference = nullptr);

}  // namespace curvq
