// How far a layer's outputs are off.
#pragma once

#include <cstdint>

namespace curvq::internal {

// tr((W - Q) H (W - Q)^T) / tr(W H W^T) in float64 with the undamped H; without one, or where the
// denominator is zero, with H = I. A weight of zeros has no error.
class LayerError {
 public:
  // weight [rows, cols], hessian [cols, cols] or null; both must outlive the object.
  LayerError(const float* weight, int64_t rows, int64_t cols, const float* hessian);

  // compressed [rows, cols]; `cancels`: it was chosen to make the error small, see
  // quadratic_trace().
  double of(const float* compressed, bool cancels) const;

 private:
  const float* weight_;
  int64_t rows_, cols_;
  const float* hessian_;  // null: the identity
  double whole_;
};

}  // namespace curvq::internal
