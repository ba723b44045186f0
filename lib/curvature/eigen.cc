#include "curvq/curvature/eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "curvature/krylov.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

// Ritz pairs of a basis: eigenvalues of T ascending, eigenvectors as rows, residuals.
struct RitzPairs {
  std::vector<double> values, residuals;
  torch::Tensor vectors;  // [m, m] float64

  explicit RitzPairs(const KrylovBasis& basis) {
    const auto [lambda, columns] = torch::linalg_eigh(basis.projected());
    vectors = columns.t().contiguous();
    const int64_t m = vectors.size(0);
    const auto theta = lambda.accessor<double, 1>();
    const auto s = vectors.accessor<double, 2>();
    for (int64_t i = 0; i < m; ++i) {
      values.push_back(theta[i]);
      // H V^T s - theta V^T s = residual * s_last * (next direction)
      residuals.push_back(basis.residual() * std::abs(s[i][m - 1]));
    }
  }
  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

// Indices of ascending values in the order of `which`.
std::vector<int64_t> ranking(const std::vector<double>& values, Spectrum which) {
  const auto m = static_cast<int64_t>(values.size());
  std::vector<int64_t> order(m);
  std::iota(order.begin(), order.end(), 0);
  if (which == Spectrum::kMostPositive) {
    std::reverse(order.begin(), order.end());
  } else if (which == Spectrum::kLargestMagnitude) {
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::abs(values[a]) > std::abs(values[b]);
    });
  } else if (which == Spectrum::kBothEnds) {
    for (int64_t i = 0; i < m; ++i) order[i] = i % 2 == 0 ? m - 1 - i / 2 : i / 2;
  }
  return order;
}

// r, or the larger of r^2 / gap and of `change`, what the last product changed.
double error_bound(const RitzPairs& ritz, int64_t i, double change) {
  double gap = std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < ritz.size(); ++j) {
    if (j != i) gap = std::min(gap, std::abs(ritz.values[i] - ritz.values[j]) - ritz.residuals[j]);
  }
  const double r = ritz.residuals[i];
  if (!std::isfinite(gap) || gap <= r) return r;
  return std::min(r, std::max(r * r / gap, change));
}

// The wanted pairs of the basis as they stand; `previous`: as they stood a product ago.
std::vector<Eigenpair> wanted_pairs(const RitzPairs& ritz, const std::vector<int64_t>& order,
                                    const std::vector<Eigenpair>& previous,
                                    const EigenOptions& options) {
  const double scale = std::max(std::abs(ritz.values.front()), std::abs(ritz.values.back()));
  std::vector<Eigenpair> pairs;
  for (size_t k = 0; k < static_cast<size_t>(std::min(options.count, ritz.size())); ++k) {
    const int64_t i = order[k];
    const double change = k < previous.size() ? std::abs(ritz.values[i] - previous[k].value)
                                              : std::numeric_limits<double>::infinity();
    const double bound = error_bound(ritz, i, change);
    pairs.push_back({ritz.values[i], ritz.residuals[i], bound, bound <= options.tolerance * scale});
  }
  return pairs;
}

bool all_converged(const std::vector<Eigenpair>& pairs, int64_t count) {
  return static_cast<int64_t>(pairs.size()) == count &&
         std::all_of(pairs.begin(), pairs.end(), [](const Eigenpair& p) { return p.converged; });
}

bool same_values(const std::vector<Eigenpair>& a, const std::vector<Eigenpair>& b,
                 double tolerance) {
  if (a.size() != b.size()) return false;
  double scale = 0;
  for (const Eigenpair& p : b) scale = std::max(scale, std::abs(p.value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i].value - b[i].value) > tolerance * scale) return false;
  }
  return true;
}

torch::Tensor normal_vector(LinearOperator& op, torch::Generator generator) {
  return draw_probes(ProbeKind::kNormal, 1, op.dimension(), op.options(), generator)[0];
}

torch::Tensor select_rows(const torch::Tensor& rows, const std::vector<int64_t>& order, int64_t k) {
  return rows.index_select(
      0, torch::tensor(std::vector<int64_t>(order.begin(), order.begin() + k), torch::kInt64));
}

}  // namespace

void EigenOptions::validate(int64_t dimension) const {
  if (count < 1 || count > dimension)
    throw UsageError("count is " + std::to_string(count) + ", the operator has " +
                     std::to_string(dimension) + " eigenvalues");
  if (!(tolerance > 0)) throw UsageError("tolerance must be positive");
  if (max_products < 1) throw UsageError("max_products must be 1 or more");
  if (basis_size != 0 && basis_size < count + 2)
    throw UsageError("basis_size is " + std::to_string(basis_size) + ", " + std::to_string(count) +
                     " eigenvalues need " + std::to_string(count + 2) + " or more");
  if (start.defined() && start.numel() != dimension)
    throw UsageError("the start vector has " + std::to_string(start.numel()) +
                     " entries, the operator " + std::to_string(dimension));
}

EigenResult lanczos_eigenvalues(LinearOperator& op, const EigenOptions& options,
                                torch::Generator generator) {
  const int64_t n = op.dimension(), count = options.count;
  options.validate(n);
  const int64_t capacity = std::min(
      n, options.basis_size > 0 ? options.basis_size : std::max<int64_t>(2 * count + 10, 20));
  const torch::Tensor start = options.start.defined() ? options.start.reshape({n}).to(op.options())
                                                      : normal_vector(op, generator);
  KrylovBasis basis(op, start, capacity);
  EigenResult result;
  // Once the Krylov space has closed: what was wanted then, and the products since another random
  // direction was taken in.
  std::vector<Eigenpair> closed;
  int64_t since = 0;
  constexpr int64_t kProductsToShow = 10;  // a hidden copy of an extreme eigenvalue by then shows
  while (true) {
    basis.extend();
    ++since;
    const RitzPairs ritz(basis);
    const std::vector<int64_t> order = ranking(ritz.values, options.which);
    result.pairs = wanted_pairs(ritz, order, result.pairs, options);
    result.iterations = basis.products();
    if (options.observe) options.observe(result.iterations, result.pairs);
    const bool converged = all_converged(result.pairs, count);
    bool done = basis.exhausted() && basis.size() == n;
    if (closed.empty()) {
      done = done || (converged && !basis.exhausted());
    } else if (converged && (basis.exhausted() || since >= kProductsToShow)) {
      done = done || same_values(closed, result.pairs, options.tolerance);
      closed = result.pairs;
      since = 0;
    }
    result.converged = done && converged;
    done = done || basis.products() >= options.max_products;
    if (!done && basis.exhausted()) {
      closed = result.pairs;
      since = 0;
      if (basis.size() < capacity) done = !basis.restart_with(normal_vector(op, generator));
    }
    if (done) {
      const auto found = static_cast<int64_t>(result.pairs.size());
      result.vectors =
          select_rows(ritz.vectors, order, found).to(op.options()).matmul(basis.rows());
      return result;
    }
    if (basis.size() == capacity) {
      // Half of the room for the wanted and their neighbours (Wu and Simon: more than count).
      const int64_t keep = std::min(capacity - 2, count + (capacity - count) / 2);
      basis.compress(select_rows(ritz.vectors, order, keep),
                     torch::tensor(ritz.values, torch::kFloat64)
                         .index_select(0, torch::tensor(std::vector<int64_t>(
                                              order.begin(), order.begin() + keep))));
      if (basis.exhausted()) basis.restart_with(normal_vector(op, generator));
    }
  }
}

}  // namespace curvq
