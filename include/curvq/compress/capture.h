// The activations that layers are compressed for: how they are got and what is made of them.
#pragma once

#include <cstdint>
#include <optional>

#include "curvq/kernels/gemm.h"

namespace curvq {

// Whose activations the Hessians are made of. kSequential: each layer's inputs come from behind the
// layers before it, already compressed. kFloat: all from the original model.
enum class Capture { kSequential, kFloat };

struct CaptureOptions {
  Capture capture = Capture::kSequential;
  // Of packed layers during calibration, and of Hessians (16 bits even where layers take 8); unset:
  // float32 with float capture, else 8 bits, which is fastest, or 16 where layers make up for
  // differences that the rounding of inputs must not add to.
  std::optional<Activations> activations;
  // How much of what compressing earlier layers did to its output each layer makes up for
  // (Capture::kSequential; 0 to 1, 0: nothing): of the difference in its inputs, and, where it
  // writes to the residual stream, of the difference there. Costs a second forward pass and two
  // Gram matrices.
  double input_correction = 0, residual_correction = 0;
  // Hessians half of plain tokens, half of tokens weighted by |g|^2, g the gradient of the model's
  // own log likelihood in the layer's output (labels drawn from its softmax, by `seed`): attention
  // sinks carry most of |g|^2 and hardly any of |x|^2. Costs three forward passes.
  bool token_weights = false;
  // Of the windows that go backwards for what needs gradients, evenly spread, above 0 to 1: the
  // token weights of others are those of plain tokens.
  double gradient_share = 1;
  uint64_t seed = 0;

  Activations calibration_activations() const;
  bool corrects() const { return input_correction > 0 || residual_correction > 0; }
  // `uses_hessians`: whether the method looks at Hessians at all. Throws UsageError naming field,
  // value and bound.
  void validate(bool uses_hessians) const;
};

}  // namespace curvq
