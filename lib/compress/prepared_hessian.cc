#include "curvq/compress/prepared_hessian.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/linalg/symmetric.h"

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

PreparedHessian prepare_hessian(const float* hessian, int64_t n, const DampingOptions& options,
                                ActOrder order, const std::string& layer, int64_t group) {
  check_hessian(hessian, n, layer);
  PreparedHessian out;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float d = hessian[i * n + i];
    if (d == 0) ++out.dead_inputs;
    sum += d;
  }
  out.order.resize(n);
  std::iota(out.order.begin(), out.order.end(), int64_t{0});
  if (out.dead_inputs == n) return out;
  const double mean = sum / static_cast<double>(n - out.dead_inputs);
  const auto diagonal = [&](int64_t i) {
    const float d = hessian[i * n + i];
    return d == 0 ? static_cast<float>(mean) : d;
  };
  if (order == ActOrder::kStatic) {
    std::vector<float> diagonals(n);
    for (int64_t i = 0; i < n; ++i) diagonals[i] = diagonal(i);
    out.order = descending(diagonals, group);
  }
  std::vector<float> permuted(n * n);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = hessian + out.order[i] * n;
    for (int64_t j = 0; j < n; ++j) permuted[i * n + j] = row[out.order[j]];
    permuted[i * n + i] = diagonal(out.order[i]);
  }
  out.damping = options.damping;
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
    const double next = std::max(out.damping * 10, 1e-6);
    log_info(format("%s: the hessian is singular at damping %g (column %lld), trying %g",
                    layer.c_str(), out.damping,
                    static_cast<long long>(out.order[inverse.failed_column]), next));
    out.damping = next;
  }
}

}  // namespace curvq
