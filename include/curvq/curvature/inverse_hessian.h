// The inverse of a damped sum of outer products, in one pass over its rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "curvq/curvature/linear_operator.h"

namespace curvq {

struct InverseHessianOptions {
  double alpha = 1e-2;  // H_0 = alpha I; positive, in the units of H
  // Rows taken in at once (Woodbury) rather than one by one (Sherman-Morrison, 1): the same result
  // to rounding, faster as matrix products.
  int64_t rank = 32;
  // Blocks of the diagonal that are kept (WoodFisher, Singh and Alistarh 2020), disjoint; empty:
  // the whole matrix. Memory is the sum of their squares.
  std::vector<Segment> blocks{};

  void validate(int64_t dimension) const;  // throws UsageError naming field, value and bound
};

// F^-1 for F = alpha I + 1/M sum_m g_m g_m^T, from rows g_m (gradients of M loss terms, or inputs
// of a layer), as Hassibi and Stork (1992, Optimal Brain Surgeon):
//   F^-1 <- F^-1 - F^-1 g g^T F^-1 / (M + g^T F^-1 g)
// or with k rows R at once (Woodbury): F^-1 <- F^-1 - F^-1 R^T (M I + R F^-1 R^T)^-1 R F^-1.
// M is the number of rows that will come in all, since each enters as g g^T / M. Not thread-safe.
class InverseHessian {
 public:
  // dtype float32 or float64 (float64 advised: errors add up over rows) and device of `tensor`.
  InverseHessian(int64_t dimension, int64_t num_rows, const InverseHessianOptions& options,
                 const torch::TensorOptions& tensor);

  // rows [k, dimension]. Throws NumericalError for rows that are not finite, UsageError for more
  // rows than num_rows in all or a wrong width.
  void add(const torch::Tensor& rows);
  int64_t rows_added() const { return added_; }

  const std::vector<Segment>& blocks() const { return options_.blocks; }
  const torch::Tensor& block(size_t i) const { return inverses_[i]; }  // [size, size]
  // Entries outside of the blocks are NaN.
  torch::Tensor diagonal() const;  // [dimension]
  // Rows v [k, dimension] -> v F^-1; blocks by themselves, zero outside of them.
  torch::Tensor solve(const torch::Tensor& v) const;

 private:
  int64_t dimension_, num_rows_, added_ = 0;
  InverseHessianOptions options_;
  std::vector<torch::Tensor> inverses_;
};

// The whole of it for given rows [M, dimension]: (alpha I + 1/M rows^T rows)^-1, or its blocks.
InverseHessian inverse_hessian(const torch::Tensor& rows, const InverseHessianOptions& options);

// The same inverse by Cholesky factorisation of the damped matrix, [n, n]: what the pass above must
// give. Throws NumericalError if matrix + alpha I is not positive definite.
torch::Tensor damped_inverse(const torch::Tensor& matrix, double alpha);

}  // namespace curvq
