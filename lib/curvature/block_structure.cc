#include "curvq/curvature/block_structure.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"

namespace curvq {
namespace {

// Segments as asked for, or the operator's; throws for one outside of the vector.
std::vector<Segment> checked(const LinearOperator& op, std::vector<Segment> segments) {
  if (segments.empty()) segments = op.segments();
  for (const Segment& s : segments) {
    if (s.offset < 0 || s.size < 1 || s.offset + s.size > op.dimension())
      throw UsageError("segment " + s.name + " is empty or reaches beyond the operator's " +
                       std::to_string(op.dimension()) + " parameters");
  }
  return segments;
}

// Squared lengths of the parts of each row, [rows, n] -> [rows, k] float64 on the CPU.
torch::Tensor squared_parts(const torch::Tensor& rows, const std::vector<Segment>& segments) {
  const torch::Tensor squares = rows.square();
  std::vector<torch::Tensor> sums;
  for (const Segment& s : segments)
    sums.push_back(squares.narrow(1, s.offset, s.size).sum(1, false, torch::kFloat64));
  return torch::stack(sums, 1).cpu();
}

}  // namespace

Estimate BlockNorms::off_diagonal_ratio() const {
  const torch::Tensor squares = norm.square();
  const torch::Tensor variances = (2 * norm * standard_error).square();  // of the squares
  const double inside = squares.diagonal().sum().item<double>();
  const double outside = squares.sum().item<double>() - inside;
  const double inside_variance = variances.diagonal().sum().item<double>();
  // A norm off the diagonal counts twice, as H_ij and H_ji.
  const double outside_variance = 2 * (variances.sum().item<double>() - inside_variance);
  Estimate ratio;
  if (!(inside > 0)) return ratio;
  ratio.value = std::sqrt(std::max(outside, 0.0) / inside);
  const double slope = ratio.value > 0 ? 0.5 / (ratio.value * inside) : 0;  // d ratio / d outside
  const double pull = slope * outside / inside;                             // d ratio / d inside
  ratio.standard_error =
      std::sqrt(slope * slope * outside_variance + pull * pull * inside_variance);
  ratio.half_width = student_t_quantile(0.975, 1000) * ratio.standard_error;
  ratio.samples = products;
  return ratio;
}

BlockNorms exact_block_norms(LinearOperator& op, std::vector<Segment> segments, int64_t chunk) {
  BlockNorms result;
  result.segments = checked(op, std::move(segments));
  const auto k = static_cast<int64_t>(result.segments.size());
  result.norm = torch::zeros({k, k}, torch::kFloat64);
  result.standard_error = torch::zeros({k, k}, torch::kFloat64);
  for (int64_t j = 0; j < k; ++j) {
    const Segment& s = result.segments[j];
    for (int64_t first = 0; first < s.size; first += chunk) {
      const int64_t count = std::min(chunk, s.size - first);
      torch::Tensor units = torch::zeros({count, op.dimension()}, op.options());
      units.narrow(1, s.offset + first, count).fill_diagonal_(1);
      result.norm[j] += squared_parts(op.apply(units), result.segments).sum(0);
      result.products += count;
    }
  }
  result.norm = (0.5 * (result.norm + result.norm.t())).sqrt();
  return result;
}

BlockNorms estimated_block_norms(LinearOperator& op, std::vector<Segment> segments, int64_t probes,
                                 ProbeKind probe, torch::Generator generator) {
  if (probes < 2)
    throw UsageError("probes is " + std::to_string(probes) + ", an error bar needs 2 or more");
  BlockNorms result;
  result.segments = checked(op, std::move(segments));
  const auto k = static_cast<int64_t>(result.segments.size());
  torch::Tensor square = torch::zeros({k, k}, torch::kFloat64), error = torch::zeros_like(square);
  for (int64_t j = 0; j < k; ++j) {
    const Segment& s = result.segments[j];
    torch::Tensor samples = torch::empty({probes, k}, torch::kFloat64);
    for (int64_t done = 0; done < probes;) {
      const int64_t count = std::min(probes_at_once(op.dimension()), probes - done);
      torch::Tensor z = torch::zeros({count, op.dimension()}, op.options());
      z.narrow(1, s.offset, s.size)
          .copy_(draw_probes(probe, count, s.size, op.options(), generator));
      samples.narrow(0, done, count).copy_(squared_parts(op.apply(z), result.segments));
      done += count;
    }
    for (int64_t i = 0; i < k; ++i) {
      const Estimate e = estimate_mean(samples.select(1, i));
      square[i][j] = e.value;
      error[i][j] = e.standard_error;
    }
    result.products += probes;
  }
  // H_ij and H_ji come from different probes; a diagonal block from one set.
  torch::Tensor mean_error = 0.5 * (error.square() + error.t().square()).sqrt();
  mean_error.diagonal().copy_(error.diagonal());
  result.norm = (0.5 * (square + square.t())).sqrt();
  result.standard_error =
      torch::where(result.norm > 0, 0.5 * mean_error / result.norm, torch::zeros_like(mean_error));
  return result;
}

std::vector<Segment> rows_as_segments(const Segment& weight, int64_t rows) {
  if (rows < 1 || weight.size % rows != 0)
    throw UsageError(std::to_string(rows) + " rows do not divide the " +
                     std::to_string(weight.size) + " entries of " + weight.name);
  const int64_t size = weight.size / rows;
  std::vector<Segment> segments;
  for (int64_t r = 0; r < rows; ++r)
    segments.push_back(
        {weight.name + "[" + std::to_string(r) + "]", weight.offset + r * size, size});
  return segments;
}

}  // namespace curvq
