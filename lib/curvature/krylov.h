// An orthonormal Krylov basis of a symmetric operator, kept fully orthogonal.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "curvq/curvature/linear_operator.h"

namespace curvq {

// Rows v_0 .. v_{size-1}, orthonormal, and T = V H V^T. A further row, the next direction, is the
// part of H v_{size-1} outside of the span, of norm `residual()` before it was normalised.
class KrylovBasis {
 public:
  // At most `capacity` rows. start [n], not zero.
  KrylovBasis(LinearOperator& op, const torch::Tensor& start, int64_t capacity);

  int64_t size() const { return size_; }
  int64_t capacity() const { return basis_.size(0) - 1; }
  int64_t products() const { return products_; }
  double residual() const { return residual_; }
  // The span is invariant to rounding: no next direction.
  bool exhausted() const { return exhausted_; }
  torch::Tensor rows() const { return basis_.narrow(0, 0, size_); }
  // T, [size, size], float64 on the CPU.
  torch::Tensor projected() const;

  // H v of every row, [size, n]: T V plus the last row's part outside. No product.
  torch::Tensor images() const;

  // One product: the next direction becomes a row. Requires !exhausted() and size() < capacity().
  void extend();
  // When exhausted: goes on in a random direction outside of the span. False if the span is all.
  bool restart_with(const torch::Tensor& direction);
  // Thick restart: keeps the combinations coefficients [keep, size] of the rows, eigenvectors of T
  // with the given eigenvalues, and the next direction.
  void compress(const torch::Tensor& coefficients, const torch::Tensor& eigenvalues);

 private:
  // Takes the first `count` rows out of `vector` in place, by classical Gram-Schmidt, twice (which
  // is enough: Giraud, Langou, Rozloznik 2005); the second products are formed behind the first
  // subtraction, panel by panel, so that the rows are read three times, not four. Returns what was
  // taken out (float64).
  torch::Tensor orthogonalise(torch::Tensor& vector, int64_t count) const;

  LinearOperator& op_;
  torch::Tensor basis_;      // [capacity + 1, n]
  torch::Tensor projected_;  // [capacity, capacity] float64
  int64_t size_ = 0;
  int64_t products_ = 0;
  double residual_ = 0;
  double scale_ = 0;  // largest |H v| seen
  bool exhausted_ = false;
};

}  // namespace curvq
