#include "curvq/curvature/dense_spectrum.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq {
namespace {

// Symmetric to the last bit, as the decomposition reads one triangle only.
torch::Tensor symmetric(const torch::Tensor& matrix) {
  const torch::Tensor wide = matrix.to(torch::kFloat64);
  return (wide + wide.t()) / 2;
}

Estimate exactly(double value, int64_t samples) {
  Estimate estimate;
  estimate.value = value;
  estimate.standard_error = estimate.half_width = 0;
  estimate.samples = samples;
  return estimate;
}

}  // namespace

EigenResult dense_eigenvalues(const torch::Tensor& matrix, int64_t count) {
  const int64_t n = matrix.size(0);
  if (count < 1 || count > n) {
    throw UsageError(format("%lld eigenvalues of a matrix of %lld rows",
                            static_cast<long long>(count), static_cast<long long>(n)));
  }
  const torch::Tensor h = symmetric(matrix);
  const auto [values, vectors] = torch::linalg_eigh(h, "L");
  const torch::Tensor order =
      values.abs().argsort(/*dim=*/0, /*descending=*/true).narrow(0, 0, count);
  const torch::Tensor top = values.index_select(0, order);
  EigenResult result;
  result.vectors = vectors.index_select(1, order).t().contiguous();
  const torch::Tensor residuals =
      torch::linalg_vector_norm(result.vectors.mm(h) - top.unsqueeze(1) * result.vectors, 2.0, {1});
  for (int64_t i = 0; i < count; ++i) {
    const double residual = residuals[i].item<double>();
    result.pairs.push_back({top[i].item<double>(), residual, residual, true});
  }
  result.converged = true;
  return result;
}

DensityResult dense_density(const torch::Tensor& matrix, const DensityOptions& options) {
  const torch::Tensor values = torch::linalg_eigvalsh(symmetric(matrix), "L");
  const int64_t n = values.size(0);
  const double low = values[0].item<double>(), high = values[n - 1].item<double>();
  const double largest = std::max(std::abs(low), std::abs(high));
  DensityResult result;
  result.nodes = values.unsqueeze(0);
  result.weights = torch::full({1, n}, 1.0 / static_cast<double>(n), torch::kFloat64);
  result.width = options.width > 0 ? options.width : std::max(0.01 * (high - low), 1e-12 * largest);
  result.near_zero = options.near_zero > 0 ? options.near_zero : 1e-3 * largest;
  // Three widths beyond the ends hold all but 1e-3 of the mass.
  result.at = torch::linspace(low - 3 * result.width, high + 3 * result.width, options.points,
                              torch::kFloat64);
  const torch::Tensor z = (result.at.unsqueeze(1) - values.unsqueeze(0)) / result.width;
  result.density = torch::exp(-0.5 * z.square()).mean(1) / (result.width * std::sqrt(2 * M_PI));
  result.standard_error = torch::zeros_like(result.density);
  result.near_zero_mass =
      exactly((values.abs() <= result.near_zero).to(torch::kFloat64).mean().item<double>(), n);
  result.trace = exactly(values.sum().item<double>(), n);
  return result;
}

}  // namespace curvq
