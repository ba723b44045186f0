#include "curvq/compress/prepared_hessian.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/hessian_rank.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/linalg/symmetric.h"
#include "curvq/linalg/symmetric_solver.h"

namespace curvq {
namespace {

// Columns by descending diagonal; with `group` > 0 groups of them, by their largest, stay together.
std::vector<int64_t> descending(const std::vector<float>& diagonal, int64_t group) {
  const int64_t n = static_cast<int64_t>(diagonal.size());
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<float> largest(group > 0 ? n / group : 0, -HUGE_VALF);
  if (group > 0) {
    for (int64_t i = 0; i < n; ++i) largest[i / group] = std::max(largest[i / group], diagonal[i]);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (group > 0 && a / group != b / group) {
      const float x = largest[a / group], y = largest[b / group];
      return x != y ? x > y : a < b;
    }
    return diagonal[a] > diagonal[b];
  });
  return order;
}

struct Ordered {
  PreparedHessian prepared;  // without factor
  std::vector<float> diagonal;
  double mean = 0;
};

// Checks, counts and orders.
Ordered ordered(const float* hessian, int64_t n, ActOrder order, const std::string& layer,
                int64_t group) {
  check_hessian(hessian, n, layer);
  Ordered out;
  PreparedHessian& prepared = out.prepared;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float d = hessian[i * n + i];
    if (d == 0) ++prepared.dead_inputs;
    sum += d;
  }
  prepared.order.resize(n);
  std::iota(prepared.order.begin(), prepared.order.end(), int64_t{0});
  if (prepared.dead_inputs == n) return out;
  out.mean = sum / static_cast<double>(n - prepared.dead_inputs);
  out.diagonal.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    const float d = hessian[i * n + i];
    out.diagonal[i] = d == 0 ? static_cast<float>(out.mean) : d;
  }
  if (order == ActOrder::kStatic) prepared.order = descending(out.diagonal, group);
  return out;
}

}  // namespace

void DampingOptions::validate() const {
  if (!(damping >= 0) || !std::isfinite(damping)) {
    throw UsageError(format("damping is %g, it must be a finite number of 0 or more", damping));
  }
  if (max_damping_retries < 0)
    throw UsageError(
        format("max_damping_retries is %d, it must be 0 or more", max_damping_retries));
}

void check_hessian(const float* hessian, int64_t n, const std::string& layer) {
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < n * n; ++i) {
    if (!std::isfinite(hessian[i]) && bad++ == 0) first = i;
  }
  if (bad > 0) {
    throw NumericalError(format(
        "%s: the hessian is not finite in %lld of %lld entries, the first at row %lld, column "
        "%lld; damping will not help, check the activations or the statistics file",
        layer.c_str(), static_cast<long long>(bad), static_cast<long long>(n * n),
        static_cast<long long>(first / n), static_cast<long long>(first % n)));
  }
}

double starting_damping(const float* hessian, int64_t n, double damping, std::string* because) {
  int64_t live = 0;
  for (int64_t i = 0; i < n; ++i) live += hessian[i * n + i] > 0;
  const int64_t rank = internal::live_rank(hessian, n);
  if (4 * rank > 3 * live) return damping;
  const double shrunk = internal::shrinkage_damping(hessian, n, rank);
  if (!(shrunk > damping)) return damping;
  *because = format("the hessian has rank %lld for %lld inputs, more tokens would help",
                    static_cast<long long>(rank), static_cast<long long>(live));
  return shrunk;
}

std::vector<float> damped_hessian(const float* hessian, int64_t n, double damping) {
  std::vector<float> out(hessian, hessian + n * n);
  double sum = 0;
  int64_t live = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += hessian[i * n + i];
    live += hessian[i * n + i] != 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (hessian[i * n + i] != 0)
      out[i * n + i] += static_cast<float>(damping * sum / static_cast<double>(live));
  }
  return out;
}

PreparedHessian prepare_hessian(const float* hessian, int64_t n, const DampingOptions& options,
                                ActOrder order, const std::string& layer, int64_t group) {
  Ordered found = ordered(hessian, n, order, layer, group);
  PreparedHessian out = std::move(found.prepared);
  const double mean = found.mean;
  if (out.dead_inputs == n) return out;
  std::vector<float> permuted(n * n);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = hessian + out.order[i] * n;
    for (int64_t j = 0; j < n; ++j) permuted[i * n + j] = row[out.order[j]];
    permuted[i * n + i] = found.diagonal[out.order[i]];
  }
  out.damping = starting_damping(hessian, n, options.damping, &out.raised_because);
  for (int retry = 0;; ++retry) {
    InverseCholesky inverse = inverse_cholesky(permuted.data(), n, out.damping * mean);
    if (inverse.failed_column < 0) {
      out.upper = std::move(inverse.upper);
      out.used_double = inverse.used_double;
      return out;
    }
    if (mean <= 0 || retry == options.max_damping_retries) {
      throw NumericalError(format(
          "%s: the hessian is finite but not positive definite (column %lld) even with damping "
          "%g; it is not a covariance of inputs, check the statistics",
          layer.c_str(), static_cast<long long>(out.order[inverse.failed_column]), out.damping));
    }
    out.raised_because = format("the hessian is singular at damping %g (column %lld)", out.damping,
                                static_cast<long long>(out.order[inverse.failed_column]));
    out.damping = std::max(out.damping * 10, 1e-6);
  }
}

PreparedHessian prepare_inverse(const float* hessian, const std::vector<double>& inverse, int64_t n,
                                const DampingOptions& options, ActOrder order,
                                const std::string& layer, int64_t group) {
  PreparedHessian out = ordered(hessian, n, order, layer, group).prepared;
  if (out.dead_inputs == n) return out;
  out.damping = options.damping;
  out.used_double = true;
  std::vector<double> lower(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) lower[i * n + j] = inverse[out.order[i] * n + out.order[j]];
  }
  if (!make_symmetric_solver()->cholesky(n, lower.data()))
    throw NumericalError(layer + ": the inverse hessian is not positive definite; raise --damping");
  out.upper.resize(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) out.upper[i * n + j] = static_cast<float>(lower[j * n + i]);
  }
  return out;
}

}  // namespace curvq
