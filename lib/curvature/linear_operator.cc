#include "curvq/curvature/linear_operator.h"

#include <algorithm>
#include <utility>

#include "curvq/core/error.h"

namespace curvq {

DenseOperator::DenseOperator(torch::Tensor matrix, std::vector<Segment> segments)
    : matrix_(std::move(matrix)), segments_(std::move(segments)) {
  if (matrix_.dim() != 2 || matrix_.size(0) != matrix_.size(1))
    throw UsageError("a dense operator needs a square matrix");
}

torch::Tensor DenseOperator::apply(const torch::Tensor& vectors) {
  torch::Tensor products = vectors.matmul(matrix_);  // symmetric: (H V^T)^T = V H
  if (!torch::isfinite(products).all().item<bool>())
    throw NumericalError("a product with the matrix is not finite");
  return products;
}

std::vector<Segment> DenseOperator::segments() const {
  return segments_.empty() ? LinearOperator::segments() : segments_;
}

torch::Tensor BlockOperator::apply(const torch::Tensor& vectors) {
  torch::Tensor padded = torch::zeros({vectors.size(0), op_.dimension()}, options());
  padded.narrow(1, segment_.offset, segment_.size).copy_(vectors);
  return op_.apply(padded).narrow(1, segment_.offset, segment_.size).contiguous();
}

torch::Tensor to_dense(LinearOperator& op, int64_t chunk) {
  const int64_t n = op.dimension();
  torch::Tensor matrix = torch::empty({n, n}, op.options());
  for (int64_t first = 0; first < n; first += chunk) {
    const int64_t count = std::min(chunk, n - first);
    torch::Tensor units = torch::zeros({count, n}, op.options());
    units.narrow(1, first, count).fill_diagonal_(1);
    matrix.narrow(0, first, count).copy_(op.apply(units));
  }
  return matrix;
}

}  // namespace curvq
