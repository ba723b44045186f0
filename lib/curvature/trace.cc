#include "curvq/curvature/trace.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "curvature/krylov.h"
#include "curvq/core/error.h"

namespace curvq {
namespace {

Estimate root_of(Estimate square) {
  const double root = std::sqrt(std::max(square.value, 0.0));
  const double slope = root > 0 ? 0.5 / root : 0;  // delta method
  square.value = root;
  square.standard_error *= slope;
  square.half_width *= slope;
  return square;
}

bool reached(const Estimate& e, double tolerance, double scale) {
  return tolerance == 0 || e.standard_error <= tolerance * scale;
}

// a[r]^T b[r] of rows r within each segment, [k, segments] float64 on the CPU, without a product of
// their length in memory.
torch::Tensor segment_products(const torch::Tensor& a, const torch::Tensor& b,
                               const std::vector<Segment>& segments) {
  constexpr int64_t kPanel = 1 << 16;
  const auto count = static_cast<int64_t>(segments.size());
  torch::Tensor sums = torch::zeros({a.size(0), count}, a.options().dtype(torch::kFloat64));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = segments[i].offset + segments[i].size;
    for (int64_t begin = segments[i].offset; begin < end; begin += kPanel) {
      const int64_t size = std::min(kPanel, end - begin);
      const torch::Tensor panel = a.narrow(1, begin, size) * b.narrow(1, begin, size);
      sums.select(1, i) += panel.sum(1, false, torch::kFloat64);
    }
  }
  return sums.cpu();
}

// Rows of `samples` joined to `all`, [m, columns].
void append(torch::Tensor& all, const torch::Tensor& samples) {
  all = all.defined() ? torch::cat({all, samples}) : samples;
}

}  // namespace

void TraceOptions::validate() const {
  if (probes < 2)
    throw UsageError("probes is " + std::to_string(probes) +
                     ", an error bar needs 2 or more independent ones");
  if (!(tolerance >= 0)) throw UsageError("tolerance must be 0 or more");
  if (max_probes < 2) throw UsageError("max_probes must be 2 or more");
  if (deflate < 0) throw UsageError("deflate must be 0 or more");
}

TraceResult hutchinson_trace(LinearOperator& op, const TraceOptions& options,
                             torch::Generator generator) {
  options.validate();
  const int64_t n = op.dimension();
  const std::vector<Segment> segments = op.segments();
  TraceResult result;
  // q [k, n]: orthonormal rows that the probes avoid. exact, exact_square [segments]: their part of
  // the trace and of the squared norm.
  torch::Tensor q;
  torch::Tensor exact = torch::zeros({static_cast<int64_t>(segments.size())}, torch::kFloat64);
  torch::Tensor exact_square = torch::zeros_like(exact);
  if (options.deflate > 0) {
    const int64_t rows = std::min(options.deflate, n);
    KrylovBasis basis(op, draw_probes(ProbeKind::kNormal, 1, n, op.options(), generator)[0], rows);
    while (basis.size() < rows && !basis.exhausted()) basis.extend();
    q = basis.rows();
    const torch::Tensor hq = basis.images();
    result.products = basis.products();
    // With P = I - Q^T Q: H = Q^T Q H + P H Q^T Q + P H P; of the first two the diagonal is exact.
    for (int64_t row = 0; row < q.size(0); ++row) {  // one at a time: they are long
      const torch::Tensor image = hq.narrow(0, row, 1);
      const torch::Tensor outside = image - image.matmul(q.t()).matmul(q);
      exact += segment_products(q.narrow(0, row, 1), image + outside, segments)[0];
      exact_square +=
          segment_products(image, image, segments)[0];  // ||H||^2 = ||H Q^T||^2 + ||H P||^2
    }
  }
  torch::Tensor traces, squares;  // [m, segments]
  const int64_t last =
      options.tolerance > 0 ? std::max(options.max_probes, options.probes) : options.probes;
  for (int64_t done = 0; done < last;) {
    const int64_t target = done < options.probes ? options.probes : last;
    // Towards a tolerance the number of probes grows by a quarter between two looks at it.
    const int64_t step = done < options.probes ? target : std::max<int64_t>(1, done / 4);
    const int64_t count = std::min({probes_at_once(n), target - done, step});
    torch::Tensor z = draw_probes(options.probe, count, n, op.options(), generator);
    if (q.defined()) z -= z.matmul(q.t()).matmul(q);
    const torch::Tensor hz = op.apply(z);
    torch::Tensor inner = hz;
    if (q.defined()) inner = hz - hz.matmul(q.t()).matmul(q);
    append(traces, segment_products(z, inner, segments) + exact);
    append(squares, segment_products(hz, hz, segments) + exact_square);
    done += count;
    result.products += count;
    if (done < options.probes) continue;
    result.trace = estimate_mean(traces.sum(1));
    result.converged = reached(result.trace, options.tolerance, std::abs(result.trace.value));
    if (result.converged) break;
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    result.segments.push_back({segments[i], estimate_mean(traces.select(1, i)),
                               root_of(estimate_mean(squares.select(1, i)))});
  }
  result.frobenius = root_of(estimate_mean(squares.sum(1)));
  result.samples = traces.sum(1);
  return result;
}

TraceResult segment_traces(LinearOperator& op, std::vector<Segment> segments,
                           const TraceOptions& options, torch::Generator generator) {
  options.validate();
  if (segments.empty()) segments = op.segments();
  const int64_t n = op.dimension();
  for (const Segment& s : segments) {
    if (s.offset < 0 || s.size < 0 || s.offset + s.size > n)
      throw UsageError("segment " + s.name + " reaches beyond the operator's " + std::to_string(n) +
                       " parameters");
  }
  const size_t blocks = segments.size();
  TraceResult result;
  std::vector<torch::Tensor> samples(blocks), squares(blocks);  // [m] of each block
  std::vector<Estimate> estimates(blocks);
  // Adds `count` samples to each of the listed blocks; a row a sample, rows of several blocks at
  // once.
  const auto sample = [&](const std::vector<size_t>& open, int64_t count) {
    std::vector<size_t> rows;
    for (const size_t b : open) rows.insert(rows.end(), count, b);
    const size_t at_once = probes_at_once(n);
    for (size_t first = 0; first < rows.size(); first += at_once) {
      const size_t height = std::min(at_once, rows.size() - first);
      torch::Tensor z = torch::zeros({static_cast<int64_t>(height), n}, op.options());
      for (size_t r = 0; r < height; ++r) {
        const Segment& s = segments[rows[first + r]];
        z[r].narrow(0, s.offset, s.size)
            .copy_(draw_probes(options.probe, 1, s.size, op.options(), generator)[0]);
      }
      const torch::Tensor hz = op.apply(z);
      const torch::Tensor forms = (z * hz).sum(1, false, torch::kFloat64).cpu();
      for (size_t r = 0; r < height; ++r) {
        const size_t b = rows[first + r];
        const torch::Tensor own = hz[r].narrow(0, segments[b].offset, segments[b].size);
        append(samples[b], forms.narrow(0, r, 1));
        append(squares[b], own.square().sum(torch::kFloat64).cpu().reshape({1}));
      }
      result.products += height;
    }
  };
  std::vector<size_t> open(blocks);
  for (size_t b = 0; b < blocks; ++b) open[b] = b;
  for (int64_t done = 0; !open.empty();) {
    const int64_t count =
        done == 0 ? options.probes : std::min(options.probes, options.max_probes - done);
    if (count <= 0) break;
    sample(open, count);
    done += count;
    double mean = 0;
    for (size_t b = 0; b < blocks; ++b) {
      estimates[b] = estimate_mean(samples[b]);
      mean += std::abs(estimates[b].value) / blocks;
    }
    std::erase_if(open, [&](size_t b) {
      return reached(estimates[b], options.tolerance, std::max(std::abs(estimates[b].value), mean));
    });
  }
  result.converged = open.empty();
  result.trace = {};
  double value = 0, variance = 0, width = 0;
  for (size_t b = 0; b < blocks; ++b) {
    result.segments.push_back({segments[b], estimates[b], root_of(estimate_mean(squares[b]))});
    value += estimates[b].value;
    variance += std::pow(estimates[b].standard_error, 2);
    width += std::pow(estimates[b].half_width, 2);
    result.trace.samples += estimates[b].samples;
  }
  result.trace.value = value;
  result.trace.standard_error = std::sqrt(variance);
  result.trace.half_width = std::sqrt(width);
  return result;
}

TraceResult hutch_plus_plus_trace(LinearOperator& op, int64_t products, ProbeKind probe,
                                  torch::Generator generator) {
  if (products < 6)
    throw UsageError("hutch++ needs 6 products or more, got " + std::to_string(products));
  const int64_t n = op.dimension(), quarter = products / 4, residual = products - 2 * quarter;
  TraceResult result;
  result.converged = true;
  const torch::Tensor sketch =
      op.apply(draw_probes(probe, std::min(quarter, n), n, op.options(), generator));
  const torch::Tensor q = std::get<0>(torch::linalg_qr(sketch.t())).t();  // orthonormal rows
  const double inside = (q * op.apply(q)).sum(torch::kFloat64).item<double>();
  torch::Tensor z = draw_probes(probe, residual, n, op.options(), generator);
  z -= z.matmul(q.t()).matmul(q);
  result.trace = estimate_mean((z * op.apply(z)).sum(1, false, torch::kFloat64) + inside);
  result.products = 2 * q.size(0) + residual;
  return result;
}

}  // namespace curvq
