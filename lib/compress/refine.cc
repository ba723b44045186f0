#include "curvq/compress/refine.h"

#include <algorithm>
#include <cmath>

#include "compress/block_search.h"
#include "compress/kept_codes.h"
#include "compress/panels.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"
#include "curvq/linalg/symmetric_solver.h"

namespace curvq {
namespace {

using internal::BlockSearch;
using internal::ColumnBlock;
using internal::kStrip;
using internal::Panels;

struct Problem {
  const float* weight;
  std::vector<double> h;      // [cols, cols]
  std::vector<double> g;      // [rows, rows]; empty: the identity
  std::vector<uint8_t> kept;  // [cols, rows]; empty: all
  QuantizedMatrix& matrix;
  const internal::ScaleCandidates scales;
  const bool search_scales;
  const std::vector<ColumnBlock> blocks;
  const int64_t candidates;

  int64_t rows() const { return matrix.rows(); }
  int64_t cols() const { return matrix.cols(); }

  // (W - Q)^T of rows [first, first + count), row stride ld.
  void difference(int64_t first, int64_t count, double* out, int64_t ld) const {
    std::vector<float> row(cols());
    for (int64_t r = 0; r < count; ++r) {
      dequantize_row(matrix, first + r, 0, cols(), row.data());
      for (int64_t j = 0; j < cols(); ++j) {
        out[j * ld + r] =
            static_cast<double>(weight[(first + r) * cols() + j]) - static_cast<double>(row[j]);
      }
    }
  }
};

// What f falls by when a row's group changes by d: 2 d P_J^T - G_ii d H_JJ d^T, P = G D H. Zero
// where that may be rounding.
double gain(const ColumnBlock& block, const BlockSearch& search, int64_t row, const double* p,
            double weight) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < block.size; ++i) {
    const double d = search.change(i, row);
    if (d == 0) continue;
    double h_d = 0;
    for (int64_t k = 0; k < block.size; ++k)
      h_d += block.hessian[i * block.size + k] * search.change(k, row);
    const double linear = 2 * d * p[i * kStrip + row], square = weight * d * h_d;
    sum += linear - square;
    magnitude += std::fabs(linear) + std::fabs(square);
  }
  return sum > 1e-9 * magnitude ? sum : 0;
}

// Without G rows do not meet: a strip of them keeps its own P = D H. Arrays are [column][kStrip].
class StripDescent {
 public:
  StripDescent(const Problem& problem, int64_t first)
      : problem_(problem),
        search_(problem.matrix, problem.scales, problem.kept, first, problem.candidates),
        product_(problem.cols() * kStrip, 0.0) {
    const int64_t cols = problem.cols();
    std::vector<double> d(cols * kStrip, 0.0);
    problem.difference(first, search_.count(), d.data(), kStrip);
    add_product_transposed(cols, kStrip, cols, 1.0, problem.h.data(), cols, d.data(), kStrip,
                           product_.data(), kStrip);
    for (size_t i = 0; i < d.size(); ++i) objective_ += d[i] * product_[i];
  }

  double objective() const { return objective_; }

  void improve(const ColumnBlock& block) {
    const int64_t cols = problem_.cols();
    double* p = product_.data() + block.begin * kStrip;
    search_.search(block, p, problem_.search_scales);
    std::vector<double> change(block.size * kStrip, 0.0);
    bool any = false;
    for (int64_t r = 0; r < search_.count(); ++r) {
      const double gained = gain(block, search_, r, p, 1);
      if (gained == 0) continue;
      any = true;
      objective_ -= gained;
      search_.accept(block, r);
      for (int64_t i = 0; i < block.size; ++i) change[i * kStrip + r] = search_.change(i, r);
    }
    if (!any) return;
    add_product_transposed(cols, kStrip, block.size, -1.0, problem_.h.data() + block.begin * cols,
                           cols, change.data(), kStrip, product_.data(), kStrip);
  }

 private:
  const Problem& problem_;
  BlockSearch search_;
  std::vector<double> product_;  // P
  double objective_ = 0;
};

// With G all rows of a group meet in P_J = G D H_J. Kept is B = G D, as B^T [cols, rows]; P_J is
// made of it for one group after the other, and brought up to date strip by strip.
class MatrixDescent {
 public:
  explicit MatrixDescent(const Problem& problem)
      : problem_(problem),
        g_(problem.g.data(), problem.rows(), problem.rows(), problem.rows()),
        b_(problem.cols(), problem.rows()),
        ld_(b_.count() * Panels::kWidth) {
    const int64_t rows = problem.rows(), cols = problem.cols();
    std::vector<double> d(cols * rows), d_by_row(rows * cols), b(cols * rows, 0.0);
    problem.difference(0, rows, d.data(), rows);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t r = 0; r < rows; ++r) d_by_row[r * cols + j] = d[j * rows + r];
    }
    add_product_transposed(cols, rows, rows, 1.0, d_by_row.data(), cols, problem.g.data(), rows,
                           b.data(), rows);
    b_ = Panels(b.data(), cols, rows, rows);
    for (const ColumnBlock& block : problem.blocks) {
      const std::vector<double> p = product(block);
      for (int64_t i = 0; i < block.size; ++i) {
        for (int64_t r = 0; r < rows; ++r)
          objective_ += d[(block.begin + i) * rows + r] * p[i * ld_ + r];
      }
    }
    for (int64_t first = 0; first < rows; first += kStrip)
      searches_.emplace_back(problem.matrix, problem.scales, problem.kept, first,
                             problem.candidates);
  }

  double objective() const { return objective_; }

  void improve(const ColumnBlock& block) {
    const std::vector<double> p = product(block);
    std::vector<double> moved(block.size * ld_, 0.0);  // (G d)^T of the strips so far
    for (BlockSearch& search : searches_) {
      const std::vector<double> change = improve(block, search, p, moved);
      if (change.empty()) continue;
      const int64_t count = search.count();
      std::vector<double> by_row(count * block.size);
      for (int64_t i = 0; i < block.size; ++i) {
        for (int64_t r = 0; r < count; ++r) by_row[r * block.size + i] = change[i * kStrip + r];
      }
      add_panel_product(block.size, by_row.data(), block.size, g_, search.first(),
                        search.first() + count, moved.data());
    }
    for (int64_t panel = 0; panel < b_.count(); ++panel) {
      for (int64_t i = 0; i < block.size; ++i) {
        const double* of = moved.data() + i * ld_ + panel * Panels::kWidth;
        double* b = b_.at(panel, block.begin + i);
        for (int64_t r = 0; r < Panels::kWidth; ++r) b[r] -= of[r];
      }
    }
  }

 private:
  // P_J^T [size, ld_]
  std::vector<double> product(const ColumnBlock& block) const {
    const int64_t cols = problem_.cols();
    std::vector<double> p(block.size * ld_, 0.0);
    add_panel_product(block.size, problem_.h.data() + block.begin, cols, b_, 0, cols, p.data());
    return p;
  }

  // Improves the rows of a strip, P_J being `all` - H_JJ `moved`. They are searched together, with
  // what each knew of the others before, and changed one by one where that lowers f still; once
  // more, then, for the codes that the others' changes call for. Returns the changes
  // [size][kStrip]; empty: none.
  std::vector<double> improve(const ColumnBlock& block, BlockSearch& search,
                              const std::vector<double>& all, const std::vector<double>& moved) {
    const int64_t first = search.first(), count = search.count();
    std::vector<double> p(block.size * kStrip, 0.0), change;
    for (int64_t i = 0; i < block.size; ++i) {
      double* of = p.data() + i * kStrip;
      std::copy_n(all.data() + i * ld_ + first, count, of);
      for (int64_t k = 0; k < block.size; ++k) {
        const double h = block.hessian[i * block.size + k];
        const double* by = moved.data() + k * ld_ + first;
        for (int64_t r = 0; r < count; ++r) of[r] -= h * by[r];
      }
    }
    bool changed = pass(block, search, problem_.search_scales, p, change);
    if (changed) pass(block, search, false, p, change);
    return change;
  }

  bool pass(const ColumnBlock& block, BlockSearch& search, bool scales, std::vector<double>& p,
            std::vector<double>& change) {
    const int64_t rows = problem_.rows(), first = search.first(), count = search.count();
    const double* g = problem_.g.data() + first * rows + first;
    std::vector<double> shift(p.size(), 0.0);
    for (int64_t r = 0; r < count; ++r) {
      if (!(g[r * rows + r] > 0)) continue;
      for (int64_t i = 0; i < block.size; ++i)
        shift[i * kStrip + r] = p[i * kStrip + r] / g[r * rows + r];
    }
    search.search(block, shift.data(), scales);
    bool any = false;
    for (int64_t r = 0; r < count; ++r) {
      const double weight = g[r * rows + r];
      const double gained = weight > 0 ? gain(block, search, r, p.data(), weight) : 0.0;
      if (gained == 0) continue;
      any = true;
      objective_ -= gained;
      search.accept(block, r);
      if (change.empty()) change.assign(block.size * kStrip, 0.0);
      for (int64_t i = 0; i < block.size; ++i) {
        change[i * kStrip + r] += search.change(i, r);
        double moved = 0;  // d H_JJ
        for (int64_t k = 0; k < block.size; ++k)
          moved += block.hessian[i * block.size + k] * search.change(k, r);
        for (int64_t k = 0; k < count; ++k) p[i * kStrip + k] -= g[r * rows + k] * moved;
      }
    }
    return any;
  }

  const Problem& problem_;
  const Panels g_;
  Panels b_;  // B^T
  const int64_t ld_;
  std::vector<BlockSearch> searches_;
  double objective_ = 0;
};

void require_output_factor(const std::vector<double>& g, int64_t rows) {
  double mean = 0;
  for (int64_t i = 0; i < rows * rows; ++i) {
    const bool on_diagonal = i % (rows + 1) == 0;
    if (!std::isfinite(g[i]) || (on_diagonal && g[i] < 0)) {
      throw NumericalError(
          format("the output factor is %g at row %lld, column %lld; it must be a mean of g g^T",
                 g[i], static_cast<long long>(i / rows), static_cast<long long>(i % rows)));
    }
    if (on_diagonal) mean += g[i] / static_cast<double>(rows);
  }
  // A float32 sum of g g^T may miss semidefiniteness by rounding.
  const double rounding = static_cast<double>(rows) * 0x1p-23 * mean;
  std::vector<double> factor = g;
  for (int64_t i = 0; i < rows; ++i) factor[i * rows + i] += rounding;
  if (mean > 0 && !make_symmetric_solver()->cholesky(rows, factor.data()))
    throw NumericalError(
        "the output factor is not positive semidefinite, so it is no mean of g g^T");
}

// Inputs that are always zero get the mean of the others' diagonal, as in GPTQ: scales that forgot
// their weights would clip them.
void keep_dead_inputs(std::vector<double>& h, int64_t n) {
  double sum = 0;
  int64_t live = 0;
  for (int64_t j = 0; j < n; ++j) {
    sum += h[j * n + j];
    live += h[j * n + j] != 0;
  }
  if (live == 0) return;
  for (int64_t j = 0; j < n; ++j) {
    if (h[j * n + j] == 0) h[j * n + j] = sum / static_cast<double>(live);
  }
}

}  // namespace

void RefineOptions::validate() const {
  if (sweeps < 0) throw UsageError(format("sweeps is %d, it must be 0 or more", sweeps));
  if (candidates < 1 || candidates > 4096) {
    throw UsageError(
        format("candidates is %lld, it must be 1 to 4096", static_cast<long long>(candidates)));
  }
}

std::vector<double> refine(const float* weight, const float* hessian, const float* output_factor,
                           QuantizedMatrix& matrix, const RefineOptions& options,
                           const uint8_t* mask) {
  options.validate();
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  std::vector<double> h(hessian, hessian + cols * cols), g;
  keep_dead_inputs(h, cols);
  if (output_factor != nullptr) {
    g.assign(output_factor, output_factor + rows * rows);
    require_output_factor(g, rows);
  }
  std::vector<uint8_t> kept;
  if (mask != nullptr) kept.assign(mask, mask + rows * cols);
  std::vector<ColumnBlock> blocks =
      internal::make_column_blocks(matrix.scheme(), h, cols, options.candidates);
  const Problem problem{weight,
                        std::move(h),
                        std::move(g),
                        internal::transposed(kept, rows, cols),
                        matrix,
                        internal::ScaleCandidates(matrix.grid),
                        options.search_scales && internal::can_search_scales(matrix.scheme()),
                        std::move(blocks),
                        options.candidates};
  std::vector<double> f(options.sweeps + 1, 0.0);
  if (output_factor != nullptr) {
    MatrixDescent descent(problem);
    f[0] = descent.objective();
    for (int sweep = 1; sweep <= options.sweeps; ++sweep) {
      for (const ColumnBlock& block : problem.blocks) descent.improve(block);
      f[sweep] = descent.objective();
    }
    return f;
  }
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  std::vector<double> of_strip(strips * (options.sweeps + 1));
  parallel_for(0, strips, [&](int64_t s) {
    StripDescent strip(problem, s * kStrip);
    double* of = of_strip.data() + s * (options.sweeps + 1);
    of[0] = strip.objective();
    for (int sweep = 1; sweep <= options.sweeps; ++sweep) {
      for (const ColumnBlock& block : problem.blocks) strip.improve(block);
      of[sweep] = strip.objective();
    }
  });
  for (int64_t s = 0; s < strips; ++s) {
    for (int sweep = 0; sweep <= options.sweeps; ++sweep)
      f[sweep] += of_strip[s * (options.sweeps + 1) + sweep];
  }
  return f;
}

}  // namespace curvq
