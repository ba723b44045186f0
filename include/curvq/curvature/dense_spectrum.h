// Spectra of matrices small enough to be held and diagonalised: what the estimators aim at.
#pragma once

#include <torch/torch.h>

#include "curvq/curvature/density.h"
#include "curvq/curvature/eigen.h"

namespace curvq {

// The `count` eigenvalues of largest magnitude of a symmetric matrix [n, n], in float64, by one
// full decomposition. The residuals are |H v - lambda v|, iterations 0.
EigenResult dense_eigenvalues(const torch::Tensor& matrix, int64_t count);

// The density whose quadrature is all n eigenvalues, each of weight 1/n, smoothed as `options` say:
// one row of nodes, standard errors zero, no products.
DensityResult dense_density(const torch::Tensor& matrix, const DensityOptions& options);

}  // namespace curvq
