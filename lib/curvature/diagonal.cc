#include "curvq/curvature/diagonal.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "curvature/held_out.h"
#include "curvature/skewness.h"
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
  torch::Tensor variance() const { return deviations / static_cast<double>(count - 1); }
  torch::Tensor standard_error() const { return (variance() / static_cast<double>(count)).sqrt(); }
};

// Of samples a z_i^2 + b z_i w, a = H_ii and w normal as z_i, a form with the eigenvalues
// (a +- sqrt(a^2 + b^2)) / 2: its cumulants are 2 s_2, 8 s_3 and 48 s_4, s_k the sum of k-th
// powers.
struct NormalForms {
  torch::Tensor skewness, excess;  // both 0 where the variance is

  NormalForms(const torch::Tensor& a, const torch::Tensor& variance) {
    const torch::Tensor aa = a.square(), bb = (variance - 2 * aa).clamp_min(0);
    const torch::Tensor cumulant2 = 2 * aa + bb, scale = cumulant2.where(cumulant2 > 0, 1);
    const torch::Tensor p = aa / scale, q = bb / scale;
    skewness = p.sqrt() * (8 * p + 6 * q);
    excess = 48 * (p.square() + p * q + q.square() / 8);
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
  const double m = static_cast<double>(running.count), t = student_t_quantile(0.975, m - 1);
  torch::Tensor error = running.standard_error(), half_width = t * error;
  if (options.probe == ProbeKind::kNormal) {
    const NormalForms of(running.mean.to(torch::kFloat64), running.variance());
    half_width *= 1 + two_sided_widening(t, of.skewness, of.excess) / m;
    error *= 1 + skewness_shift(3) * of.skewness / std::sqrt(m);
  }
  return {running.mean, error, running.count, half_width};
}

DiagonalResult xdiag(LinearOperator& op, int64_t products, torch::Generator generator) {
  if (products < 6)
    throw UsageError("xdiag needs 6 products or more, got " + std::to_string(products));
  const HeldOutSketch s(op, products / 2, ProbeKind::kRademacher, generator);
  const torch::Tensor inside = (s.q * s.hq).sum(0);  // diag(Q^T Q H)
  if (s.complete) {
    const torch::Tensor rounding =
        torch::full_like(inside, s.epsilon * s.core.norm().item<double>());
    return {inside, rounding, s.products, rounding};
  }
  const int64_t m = s.probes.size(0);
  const torch::Tensor directions = s.directions.to(op.options());
  const torch::Tensor out = directions.matmul(s.q), image = directions.matmul(s.hq);
  const torch::Tensor cosines = s.directions.matmul(s.directions.t());
  RunningMean whole, without;  // samples; estimates from all probes but one
  for (int64_t i = 0; i < m; ++i) {
    // Q_i = Q without the direction Q^T s_i, and (I - Q_i^T Q_i) H omega_i = Q^T s_i (s_i . Q Y_i).
    const torch::Tensor others = inside - out[i] * image[i];
    const double along = s.directions[i].dot(s.sketch[i]).item<double>();
    whole.add((others + s.probes[i] * out[i] * along).unsqueeze(0));
    RunningMean rest;
    for (int64_t j = 0; j < m; ++j) {
      if (j == i) continue;
      // Without Q^T u too, u the part of s_j across s_i; s_i . Q Y_j = 0.
      const double cosine = cosines[i][j].item<double>(), square = 1 - cosine * cosine;
      const double along_j = s.directions[j].dot(s.sketch[j]).item<double>();
      const torch::Tensor second = (out[j] - cosine * out[i]) / square;
      rest.add((others - second * (image[j] - cosine * image[i]) + s.probes[j] * second * along_j)
                   .unsqueeze(0));
    }
    without.add(rest.mean.unsqueeze(0));
  }
  const torch::Tensor error = (without.deviations * (m - 1) / m).sqrt();
  return {whole.mean, error, s.products, student_t_quantile(0.975, m - 1) * error};
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
  const torch::Tensor none = torch::zeros_like(value);
  return {value, none, n, none};
}

}  // namespace curvq
