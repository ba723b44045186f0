#include "curvq/curvature/inverse_hessian.h"

#include <algorithm>
#include <limits>
#include <string>

#include "curvq/core/error.h"

namespace curvq {

void InverseHessianOptions::validate(int64_t dimension) const {
  if (!(alpha > 0)) throw UsageError("alpha must be positive");
  if (rank < 1) throw UsageError("rank is " + std::to_string(rank) + ", must be 1 or more");
  for (const Segment& s : blocks) {
    if (s.offset < 0 || s.size < 1 || s.offset + s.size > dimension)
      throw UsageError("block " + s.name + " is empty or reaches beyond " +
                       std::to_string(dimension) + " parameters");
  }
}

InverseHessian::InverseHessian(int64_t dimension, int64_t num_rows,
                               const InverseHessianOptions& options,
                               const torch::TensorOptions& tensor)
    : dimension_(dimension), num_rows_(num_rows), options_(options) {
  options_.validate(dimension);
  if (num_rows < 1) throw UsageError("there must be 1 row or more");
  if (options_.blocks.empty()) options_.blocks = {{"all", 0, dimension}};
  for (const Segment& s : options_.blocks)
    inverses_.push_back(torch::eye(s.size, tensor) / options_.alpha);
}

void InverseHessian::add(const torch::Tensor& rows) {
  if (rows.dim() != 2 || rows.size(1) != dimension_)
    throw UsageError("rows of an inverse hessian need the shape [k, " + std::to_string(dimension_) +
                     "]");
  if (added_ + rows.size(0) > num_rows_)
    throw UsageError(std::to_string(added_ + rows.size(0)) + " rows were added, " +
                     std::to_string(num_rows_) + " were announced");
  if (!torch::isfinite(rows).all().item<bool>())
    throw NumericalError("rows " + std::to_string(added_) + " to " +
                         std::to_string(added_ + rows.size(0) - 1) +
                         " of an inverse hessian are not finite");
  for (int64_t first = 0; first < rows.size(0); first += options_.rank) {
    const torch::Tensor chunk =
        rows.narrow(0, first, std::min(options_.rank, rows.size(0) - first));
    for (size_t b = 0; b < inverses_.size(); ++b) {
      const Segment& s = options_.blocks[b];
      torch::Tensor& inverse = inverses_[b];
      const torch::Tensor r = chunk.narrow(1, s.offset, s.size).to(inverse.options());
      const torch::Tensor u = r.matmul(inverse);  // R F^-1
      const torch::Tensor core =
          static_cast<double>(num_rows_) * torch::eye(r.size(0), r.options()) + u.matmul(r.t());
      // With core = L L^T the update is the Gram matrix of L^-1 R F^-1, symmetric by its form.
      const torch::Tensor half = torch::linalg_solve_triangular(torch::linalg_cholesky(core), u,
                                                                /*upper=*/false);
      inverse.addmm_(half.t(), half, 1, -1);
    }
  }
  added_ += rows.size(0);
}

torch::Tensor InverseHessian::diagonal() const {
  torch::Tensor result = torch::full({dimension_}, std::numeric_limits<double>::quiet_NaN(),
                                     inverses_.front().options());
  for (size_t b = 0; b < inverses_.size(); ++b) {
    const Segment& s = options_.blocks[b];
    result.narrow(0, s.offset, s.size).copy_(inverses_[b].diagonal());
  }
  return result;
}

torch::Tensor InverseHessian::solve(const torch::Tensor& v) const {
  torch::Tensor result = torch::zeros_like(v);
  for (size_t b = 0; b < inverses_.size(); ++b) {
    const Segment& s = options_.blocks[b];
    result.narrow(1, s.offset, s.size).copy_(v.narrow(1, s.offset, s.size).matmul(inverses_[b]));
  }
  return result;
}

InverseHessian inverse_hessian(const torch::Tensor& rows, const InverseHessianOptions& options) {
  InverseHessian result(rows.size(-1), rows.size(0), options, rows.options());
  result.add(rows);
  return result;
}

torch::Tensor damped_inverse(const torch::Tensor& matrix, double alpha) {
  const auto [root, info] =
      torch::linalg_cholesky_ex(matrix + alpha * torch::eye(matrix.size(0), matrix.options()));
  if (info.item<int64_t>() != 0)
    throw NumericalError("a matrix of " + std::to_string(matrix.size(0)) +
                         " rows is not positive definite with " + std::to_string(alpha) +
                         " added; raise the damping");
  return torch::cholesky_inverse(root);
}

}  // namespace curvq
