// The diagonal of an operator: estimated from products with random vectors, or exact.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

struct DiagonalOptions {
  ProbeKind probe = ProbeKind::kRademacher;
  int64_t probes = 30;  // 2 or more
  // Every entry is replaced by the mean over runs of this many within its segment (AdaHessian,
  // Yao et al. 2021, averages so over convolution kernels): less noise, less detail. 1: none.
  int64_t average_over = 1;

  void validate() const;  // throws UsageError naming field, value and bound
};

struct DiagonalResult {
  torch::Tensor value;           // [n], dtype and device of the operator
  torch::Tensor standard_error;  // [n], of each entry; zero when exact
  int64_t products = 0;
  torch::Tensor half_width;  // [n], of the 95 % interval around each entry; zero when exact
};

// Bekas, Kokiopoulou, Saad (2007): diag H = E z * (H z), entry by entry. The standard error is that
// of the sample of z_i (H z)_i, whose variance is sum_{j != i} H_ij^2 for entries +-1. Normal
// probes add 2 H_ii^2, skewness and kurtosis, known from both, for which the standard error is
// widened as that of estimate_mean(), and the interval by Hall (1992) to the second order.
DiagonalResult hutchinson_diagonal(LinearOperator& op, const DiagonalOptions& options,
                                   torch::Generator generator);

// XDiag (Epperly, Tropp, Webber 2024) with entries +-1 and `products` / 2 >= 3 probes, each held
// out of the subspace that the others span. The samples are exchangeable, not independent: the
// error is the jackknife's, which is too large rather than too small. A matrix of rank below
// products / 2 is exact to rounding.
DiagonalResult xdiag(LinearOperator& op, int64_t products, torch::Generator generator);

// Exact, by n products with unit vectors, `chunk` at a time.
DiagonalResult exact_diagonal(LinearOperator& op, int64_t chunk = 64);

}  // namespace curvq
