#include "compress/layer_error.h"

#include <vector>

#include "curvq/linalg/symmetric.h"

namespace curvq::internal {
namespace {

double sum_of_squares(const float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

}  // namespace

LayerError::LayerError(const float* weight, int64_t rows, int64_t cols, const float* hessian)
    : weight_(weight), rows_(rows), cols_(cols), hessian_(hessian) {
  whole_ = hessian ? quadratic_trace(weight, rows, hessian, cols, false) : 0;
  if (whole_ > 0) return;
  hessian_ = nullptr;
  whole_ = sum_of_squares(weight, rows * cols);
  if (whole_ == 0) whole_ = 1;
}

double LayerError::of(const float* compressed, bool cancels) const {
  std::vector<float> error(rows_ * cols_);
  for (int64_t i = 0; i < rows_ * cols_; ++i) error[i] = weight_[i] - compressed[i];
  const double lost = hessian_ ? quadratic_trace(error.data(), rows_, hessian_, cols_, cancels)
                               : sum_of_squares(error.data(), rows_ * cols_);
  return lost / whole_;
}

}  // namespace curvq::internal
