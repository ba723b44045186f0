// The spectral density of an operator by stochastic Lanczos quadrature.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

struct DensityOptions {
  ProbeKind probe = ProbeKind::kRademacher;
  int64_t probes = 8;  // 2 or more, for the error band
  int64_t steps = 30;  // Lanczos steps a probe, and vectors held at once; fewer if the space closes
  int64_t points = 256;  // of the smoothed curve
  // Standard deviation of the Gaussian that each node is smeared to; 0: 1 % of the range of nodes.
  double width = 0;
  // Eigenvalues within this distance of zero count as zero; 0: 1e-3 of the largest magnitude.
  double near_zero = 0;

  void validate() const;  // throws UsageError naming field, value and bound
};

struct DensityResult {
  // Quadrature of each probe, [probes, steps]; unused places have weight 0 and node 0.
  torch::Tensor nodes;
  torch::Tensor weights;  // rows sum to 1
  // The smoothed density at `at`, its mean over probes and standard error, [points] float64. Its
  // integral is 1.
  torch::Tensor at;
  torch::Tensor density;
  torch::Tensor standard_error;
  Estimate near_zero_mass;  // share of eigenvalues within near_zero of zero
  double near_zero = 0;
  double width = 0;
  Estimate trace;  // n times the mean of the nodes: Hutchinson's estimate
  int64_t products = 0;
};

// Ubaru, Chen, Saad (2017); as in Ghorbani, Krishnan, Xiao (2019). For a probe v of norm 1, Lanczos
// with full reorthogonalisation gives nodes theta_i and weights tau_i = (e_1^T y_i)^2 whose moments
// sum tau_i theta_i^k equal v^T H^k v for k < 2 steps. phi(t) = mean over probes of
// sum tau_i N(t; theta_i, width^2).
DensityResult spectral_density(LinearOperator& op, const DensityOptions& options,
                               torch::Generator generator);

}  // namespace curvq
