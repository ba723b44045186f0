#include "compress/hessian_rank.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "curvq/linalg/symmetric_solver.h"

namespace curvq::internal {
namespace {

// [count, count] of the inputs `live`, with a unit diagonal.
std::vector<double> correlations(const float* h, int64_t n, const std::vector<int64_t>& live,
                                 int64_t count) {
  std::vector<double> c(count * count);
  for (int64_t i = 0; i < count; ++i) {
    const float* row = h + live[i] * n;
    for (int64_t j = 0; j < count; ++j) {
      const double scale = std::sqrt(static_cast<double>(row[live[i]]) * h[live[j] * n + live[j]]);
      c[i * count + j] = row[live[j]] / scale;
    }
  }
  return c;
}

bool independent(std::vector<double> c, int64_t n, double least) {
  if (!make_symmetric_solver()->cholesky(n, c.data())) return false;
  for (int64_t i = 0; i < n; ++i) {
    if (!(c[i * n + i] * c[i * n + i] > least)) return false;
  }
  return true;
}

// Outer products of the columns with the largest pivots, until none is above `least`; n if there
// are more than `most`.
int64_t pivoted_rank(std::vector<double> c, int64_t n, double least, int64_t most) {
  for (int64_t rank = 0; rank <= most; ++rank) {
    int64_t pivot = 0;
    for (int64_t i = 1; i < n; ++i) {
      if (c[i * n + i] > c[pivot * n + pivot]) pivot = i;
    }
    const double value = c[pivot * n + pivot];
    if (!(value > least)) return rank;
    const std::vector<double> row(c.begin() + pivot * n, c.begin() + (pivot + 1) * n);
    for (int64_t i = 0; i < n; ++i) {
      if (row[i] == 0) continue;  // went before
      const double share = row[i] / value;
      double* of = c.data() + i * n;
      for (int64_t j = 0; j < n; ++j) of[j] -= share * row[j];
    }
    for (int64_t i = 0; i < n; ++i) c[pivot * n + i] = c[i * n + pivot] = 0;
  }
  return n;
}

}  // namespace

int64_t live_rank(const float* h, int64_t n) {
  std::vector<int64_t> live;
  for (int64_t i = 0; i < n; ++i) {
    if (h[i * n + i] > 0) live.push_back(i);
  }
  const auto count = static_cast<int64_t>(live.size());
  if (count == 0) return 0;
  const double least = static_cast<double>(n) * 0x1p-23;
  const int64_t part = std::min(count, 3 * count / 4 + 1);
  if (independent(correlations(h, n, live, part), part, least)) return count;
  return pivoted_rank(correlations(h, n, live, count), count, least, 3 * count / 4);
}

double shrinkage_damping(const float* h, int64_t n, int64_t samples) {
  double trace = 0, squares = 0;
  int64_t live = 0;
  for (int64_t i = 0; i < n; ++i) {
    trace += h[i * n + i];
    live += h[i * n + i] > 0;
    for (int64_t j = 0; j < n; ++j)
      squares += static_cast<double>(h[i * n + j]) * static_cast<double>(h[i * n + j]);
  }
  constexpr double kMost = 0.9;
  const auto p = static_cast<double>(live), m = static_cast<double>(samples);
  const double spread = squares - trace * trace / p;  // of the eigenvalues around their mean
  if (!(spread > 0)) return kMost;
  const double rho = ((1 - 2 / p) * squares + trace * trace) / ((m + 1 - 2 / p) * spread);
  return rho < 1 ? std::min(kMost, rho / (1 - rho)) : kMost;
}

}  // namespace curvq::internal
