#include "curvq/curvature/diagonal.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "curvature/held_out.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

// Means over runs of `length` entries (the last run of a segment may be shorter), in place.
void average_runs(torch::Tensor& rows, const std::vector<Segment>& segments, int64_t length) {
  for (const Segment& s : segments) {
    const int64_t whole = s.size / length * length;
    if (whole > 0) {
      torch::Tensor runs = rows.narrow(1, s.offset, whole).unflatten(1, {-1, length});
      runs.copy_(runs.mean(2, /*keepdim=*/true).expand_as(runs));
    }
    if (whole < s.size) {
      torch::Tensor tail = rows.narrow(1, s.offset + whole, s.size - whole);
      tail.copy_(tail.mean(1, /*keepdim=*/true).expand_as(tail));
    }
  }
}

// Running mean and sum of squared deviations of rows (Welford 1962, by chunks: Chan et al. 1979).
struct RunningMean {
  int64_t count = 0;
  torch::Tensor mean, deviations;

  void add(const torch::Tensor& rows) {
    const int64_t m = rows.size(0);
    const torch::Tensor chunk_mean = rows.mean(0);
    const torch::Tensor chunk_deviations = (rows - chunk_mean).square().sum(0);
    if (count == 0) {
      mean = chunk_mean;
      deviations = chunk_deviations;
    } else {
      const torch::Tensor shift = chunk_mean - mean;
      const double weight = static_cast<double>(m) / (count + m);
      mean += weight * shift;
      deviations += chunk_deviations + shift.square() * (weight * count);
    }
    count += m;
  }
  torch::Tensor standard_error() const {
    return (deviations / (static_cast<double>(count) * (count - 1))).sqrt();
  }
};

}  // namespace

void DiagonalOptions::validate() const {
  if (probes < 2)
    throw UsageError("probes is " + std::to_string(probes) +
                     ", an error bar needs 2 or more independent ones");
  if (average_over < 1)
    throw UsageError("average_over is " + std::to_string(average_over) + ", must be 1 or more");
}

DiagonalResult hutchinson_diagonal(LinearOperator& op, const DiagonalOptions& options,
                                   torch::Generator generator) {
  options.validate();
  const int64_t n = op.dimension();
  const std::vector<Segment> segments = op.segments();
  RunningMean running;
  while (running.count < options.probes) {
    const int64_t count = std::min(probes_at_once(n), options.probes - running.count);
    const torch::Tensor z = draw_probes(options.probe, count, n, op.options(), generator);
    torch::Tensor samples = z * op.apply(z);
    if (options.average_over > 1) average_runs(samples, segments, options.average_over);
    running.add(samples);
  }
  // z_i^2 of normal probes is skewed: three plain standard errors cover 98.6 %, widened 99.
  const double widening = options.probe == ProbeKind::kNormal ? 1.1 : 1.0;
  return {running.mean, widening * running.standard_error(), running.count};
}

DiagonalResult xdiag(LinearOperator& op, int64_t products, torch::Generator generator) {
  if (products < 4)
    throw UsageError("xdiag needs 4 products or more, got " + std::to_string(products));
  const HeldOutSketch s(op, products / 2, ProbeKind::kRademacher, generator);
  const torch::Tensor inside = (s.q * s.hq).sum(0);  // diag(Q^T Q H)
  if (s.complete) {
    return {inside, torch::full_like(inside, s.epsilon * s.core.norm().item<double>()), s.products};
  }
  const torch::Tensor directions = s.directions.to(op.options());
  RunningMean running;
  for (int64_t i = 0; i < s.probes.size(0); ++i) {
    // Q_i = Q without the direction Q^T s_i, and (I - Q_i^T Q_i) H omega_i = Q^T s_i (s_i . Q Y_i).
    const torch::Tensor out = s.q.t().mv(directions[i]), image = s.hq.t().mv(directions[i]);
    const double along = s.directions[i].dot(s.sketch[i]).item<double>();
    running.add((inside - out * image + s.probes[i] * out * along).unsqueeze(0));
  }
  return {running.mean, kHeldOutWidening * running.standard_error(), s.products};
}

DiagonalResult exact_diagonal(LinearOperator& op, int64_t chunk) {
  const int64_t n = op.dimension();
  torch::Tensor value = torch::empty({n}, op.options());
  for (int64_t first = 0; first < n; first += chunk) {
    const int64_t count = std::min(chunk, n - first);
    torch::Tensor units = torch::zeros({count, n}, op.options());
    units.narrow(1, first, count).fill_diagonal_(1);
    value.narrow(0, first, count).copy_(op.apply(units).narrow(1, first, count).diagonal());
  }
  return {value, torch::zeros_like(value), n};
}

}  // namespace curvq
