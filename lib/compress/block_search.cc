#include "compress/block_search.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "compress/kept_codes.h"
#include "curvq/core/error.h"
#include "curvq/linalg/symmetric.h"
#include "curvq/linalg/symmetric_solver.h"

namespace curvq::internal {
namespace {

void add_lanes(std::vector<double>& x, int64_t to, double a, int64_t from) {
  double* y = x.data() + to * kStrip;
  const double* z = x.data() + from * kStrip;
  for (int64_t r = 0; r < kStrip; ++r) y[r] += a * z[r];
}
void scale_lanes(std::vector<double>& x, int64_t at, double a) {
  for (int64_t r = 0; r < kStrip; ++r) x[at * kStrip + r] *= a;
}

// What the searches multiply distances by.
void set_shares(ColumnBlock& block) {
  const int64_t size = block.size;
  for (std::vector<float>* v : {&block.plane_shares, &block.descent_shares, &block.negated_hessian})
    v->assign(size * size, 0.0f);
  for (int64_t i = 0; i < size; ++i) {
    const auto pivot = static_cast<float>(block.hessian[i * size + i]);
    for (int64_t k = 0; k < size; ++k) {
      const int64_t at = i * size + k;
      const auto h = static_cast<float>(block.hessian[at]);
      block.negated_hessian[at] = -h;
      if (k != i && pivot > 0) block.descent_shares[at] = -h / pivot;
      if (k > i) {
        block.plane_shares[at] =
            static_cast<float>(-block.factor[k * size + i] / block.factor[i * size + i]);
      }
    }
  }
}

}  // namespace

std::vector<ColumnBlock> make_column_blocks(const Scheme& scheme, const std::vector<double>& h,
                                            int64_t cols, int64_t candidates) {
  constexpr int64_t kColumnsWithoutGroup = 64;
  const int64_t size = can_search_scales(scheme) ? scheme.group_size : kColumnsWithoutGroup;
  double mean = 0;
  for (int64_t i = 0; i < cols; ++i) mean += h[i * cols + i] / static_cast<double>(cols);
  std::vector<ColumnBlock> blocks((cols + size - 1) / size);
  for (size_t b = 0; b < blocks.size(); ++b) {
    ColumnBlock& block = blocks[b];
    block.begin = static_cast<int64_t>(b) * size;
    block.size = std::min(size, cols - block.begin);
    block.hessian.resize(block.size * block.size);
    for (int64_t i = 0; i < block.size; ++i) {
      for (int64_t j = 0; j < block.size; ++j) {
        block.hessian[i * block.size + j] = h[(block.begin + i) * cols + block.begin + j];
      }
    }
    block.factor = block.hessian;
    const std::unique_ptr<SymmetricSolver> solver = make_symmetric_solver();
    for (double damping = 1e-6;; damping *= 100) {
      for (int64_t i = 0; i < block.size; ++i) {
        const double pad = mean > 0 ? damping * mean : 1.0;
        block.factor[i * block.size + i] = block.hessian[i * block.size + i] + pad;
      }
      if (solver->cholesky(block.size, block.factor.data())) break;
      if (damping > 1)
        throw NumericalError("the hessian has a block that is not positive definite");
      block.factor = block.hessian;
    }
    set_shares(block);
    if (candidates > 1) {
      const std::vector<float> narrow(block.hessian.begin(), block.hessian.end());
      for (double damping = 1e-6; block.upper.empty(); damping *= 100)
        block.upper =
            inverse_cholesky(narrow.data(), block.size, mean > 0 ? damping * mean : 1).upper;
    }
  }
  return blocks;
}

BlockSearch::BlockSearch(QuantizedMatrix& matrix, const ScaleCandidates& candidates,
                         const std::vector<uint8_t>& kept, int64_t first, int64_t most)
    : matrix_(matrix),
      candidates_(candidates),
      kept_(kept),
      first_(first),
      count_(std::min(kStrip, matrix.rows() - first)),
      most_(most),
      table_(matrix.scheme()) {}

void BlockSearch::search(const ColumnBlock& block, const double* shift, bool scales) {
  prepare(block, shift);
  const Trial present = trial_of(present_scales_);
  std::copy(present_.begin(), present_.end(), rounded_.begin());
  descend(block, present);
  keep_best(block, present, true);
  nearest_plane(block, present);
  descend(block, present);
  keep_best(block, present, false);
  if (scales) {
    for (int64_t c = 0; c < candidates_.count(); ++c) {
      std::vector<StoredScale> of_rows(kStrip);
      for (int64_t r = 0; r < count_; ++r) of_rows[r] = candidates_.at(c, present_scales_[r]);
      const Trial trial = trial_of(of_rows);
      nearest_plane(block, trial);
      descend(block, trial);
      keep_best(block, trial, false);
    }
    if (matrix_.scheme().element == ElementType::kInt) refit(block);
  }
  if (most_ > 1) keep_many(block);
}

void BlockSearch::accept(const ColumnBlock& block, int64_t row) {
  ScaleGrid& grid = matrix_.grid;
  const int64_t at = (first_ + row) * grid.groups + matrix_.scheme().group_of(block.begin);
  grid.scales[at] = best_scales_[row].value;
  if (!grid.scale_codes.empty()) grid.scale_codes[at] = best_scales_[row].code;
  for (int64_t i = 0; i < block.size; ++i)
    matrix_.set_code(first_ + row, block.begin + i, best_codes_[i * kStrip + row]);
}

BlockSearch::Trial BlockSearch::trial_of(std::vector<StoredScale> scales) const {
  Trial trial;
  trial.scales = std::move(scales);
  trial.values.resize(kStrip, 1.0f);
  for (int64_t r = 0; r < count_; ++r) trial.values[r] = trial.scales[r].value;
  return trial;
}

// Present values and scales, and the targets.
void BlockSearch::prepare(const ColumnBlock& block, const double* shift) {
  const int64_t size = block.size, group = matrix_.scheme().group_of(block.begin);
  const ScaleGrid& grid = matrix_.grid;
  for (std::vector<float>* v : {&present_, &target_, &rounded_, &distance_, &best_rounded_})
    v->assign(size * kStrip, 0.0f);
  for (std::vector<uint8_t>* v : {&codes_, &best_codes_}) v->assign(size * kStrip, 0);
  best_loss_.assign(kStrip, 0.0f);
  loss_.assign(kStrip, 0.0f);
  column_.assign(kStrip, 0.0f);
  present_scales_.assign(kStrip, StoredScale{});
  best_scales_.assign(kStrip, StoredScale{});
  zero_points_.assign(grid.zero_points.empty() ? 0 : kStrip, 0);
  for (int64_t r = 0; r < count_; ++r) {
    const int64_t i = (first_ + r) * grid.groups + group;
    present_scales_[r].value = grid.scales[i];
    if (!grid.scale_codes.empty()) present_scales_[r].code = grid.scale_codes[i];
    if (!zero_points_.empty()) zero_points_[r] = grid.zero_points[i];
    for (int64_t j = 0; j < size; ++j) {
      present_[j * kStrip + r] =
          decode(grid.scheme, matrix_.code(first_ + r, block.begin + j), grid.scales[i],
                 grid.zero_points.empty() ? 0 : zero_points_[r]);
    }
  }
  std::vector<double> step(shift, shift + size * kStrip);
  const double* l = block.factor.data();
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t k = 0; k < i; ++k) add_lanes(step, i, -l[i * size + k], k);
    scale_lanes(step, i, 1 / l[i * size + i]);
  }
  for (int64_t i = size - 1; i >= 0; --i) {
    for (int64_t k = i + 1; k < size; ++k) add_lanes(step, i, -l[k * size + i], k);
    scale_lanes(step, i, 1 / l[i * size + i]);
  }
  for (int64_t i = 0; i < size * kStrip; ++i)
    target_[i] = static_cast<float>(present_[i] + step[i]);
}

// Rounds what column_ holds into column j of rounded_, and sets its distance from the target.
void BlockSearch::round_column(const ColumnBlock& block, int64_t j, const Trial& trial) {
  encode_kept(matrix_.scheme(), column_.data(), trial.values.data(),
              zero_points_.empty() ? nullptr : zero_points_.data(),
              kept_.empty() ? nullptr : kept_.data() + (block.begin + j) * matrix_.rows() + first_,
              count_, codes_.data() + j * kStrip, rounded_.data() + j * kStrip);
  scaled_error(distance_.data() + j * kStrip, target_.data() + j * kStrip,
               rounded_.data() + j * kStrip, 1.0f, count_);
}

void BlockSearch::nearest_plane(const ColumnBlock& block, const Trial& trial) {
  const int64_t size = block.size;
  for (int64_t i = size - 1; i >= 0; --i) {
    std::copy_n(target_.data() + i * kStrip, kStrip, column_.data());
    const int64_t next = i + 1;
    subtract_product(column_.data(), block.plane_shares.data() + i * size + next, size - next,
                     distance_.data() + next * kStrip);
    round_column(block, i, trial);
  }
}

// One pass of coordinate descent from rounded_.
void BlockSearch::descend(const ColumnBlock& block, const Trial& trial) {
  const int64_t size = block.size;
  for (int64_t i = 0; i < size; ++i) {
    scaled_error(distance_.data() + i * kStrip, target_.data() + i * kStrip,
                 rounded_.data() + i * kStrip, 1.0f, count_);
  }
  for (int64_t i = 0; i < size; ++i) {
    std::copy_n(target_.data() + i * kStrip, kStrip, column_.data());
    const float* shares = block.descent_shares.data() + i * size;
    subtract_product(column_.data(), shares, i, distance_.data());
    subtract_product(column_.data(), shares + i + 1, size - i - 1,
                     distance_.data() + (i + 1) * kStrip);
    round_column(block, i, trial);
  }
}

// loss = z H_JJ z^T; takes over what is better than the best so far.
void BlockSearch::keep_best(const ColumnBlock& block, const Trial& trial, bool first) {
  const int64_t size = block.size;
  std::fill(loss_.begin(), loss_.end(), 0.0f);
  for (int64_t i = 0; i < size; ++i) {
    std::fill(column_.begin(), column_.end(), 0.0f);
    subtract_product(column_.data(), block.negated_hessian.data() + i * size, size,
                     distance_.data());
    for (int64_t r = 0; r < count_; ++r) loss_[r] += column_[r] * distance_[i * kStrip + r];
  }
  for (int64_t r = 0; r < count_; ++r) {
    if (!first && !(loss_[r] < best_loss_[r])) continue;
    best_loss_[r] = loss_[r];
    best_scales_[r] = trial.scales[r];
    for (int64_t i = r; i < size * kStrip; i += kStrip) {
      best_rounded_[i] = rounded_[i];
      best_codes_[i] = codes_[i];
    }
  }
}

// Scales that fit the best codes c: s = c H t^T / c H c^T; then another descent.
void BlockSearch::refit(const ColumnBlock& block) {
  const int64_t size = block.size;
  std::vector<StoredScale> scales = best_scales_;
  for (int64_t r = 0; r < count_; ++r) {
    double with_target = 0, with_self = 0;
    for (int64_t i = 0; i < size; ++i) {
      double h_c = 0;
      for (int64_t k = 0; k < size; ++k)
        h_c -= static_cast<double>(block.negated_hessian[i * size + k]) *
               best_rounded_[k * kStrip + r];
      with_target += h_c * target_[i * kStrip + r];
      with_self += h_c * best_rounded_[i * kStrip + r];
    }
    const double factor = with_self > 0 ? with_target / with_self : 1;
    const float fitted =
        round_to_dtype(static_cast<float>(factor * scales[r].value), matrix_.scheme().scale_dtype);
    if (factor > 0.5 && factor < 2 && std::isfinite(fitted) && fitted != 0)
      scales[r].value = fitted;
  }
  const Trial trial = trial_of(std::move(scales));
  std::copy(best_rounded_.begin(), best_rounded_.end(), rounded_.begin());
  descend(block, trial);
  keep_best(block, trial, false);
}

// The best of many candidates on the best scale, and a descent from there.
void BlockSearch::keep_many(const ColumnBlock& block) {
  static constexpr float kZero[] = {0.0f};
  const int64_t size = block.size, rows = matrix_.rows();
  KBest search(block.upper.data(), size, size, most_);
  std::vector<float> values(table_.size());
  ColumnValues of_column(size);
  const Trial trial = trial_of(best_scales_);
  for (int64_t r = 0; r < count_; ++r) {
    table_.fill(trial.values[r], zero_points_.empty() ? 0 : zero_points_[r], values.data());
    for (int64_t i = 0; i < size; ++i) {
      const bool kept = kept_.empty() || kept_[(block.begin + i) * rows + first_ + r];
      of_column[i] = kept ? std::span<const float>(values) : std::span<const float>(kZero);
    }
    search.search(target_.data() + r, kStrip, of_column);
    for (int64_t i = 0; i < size; ++i) rounded_[i * kStrip + r] = of_column[i][search.choices()[i]];
  }
  const std::vector<float> found = rounded_;
  for (int64_t i = 0; i < size; ++i) {
    std::copy_n(found.data() + i * kStrip, kStrip, column_.data());
    round_column(block, i, trial);
  }
  keep_best(block, trial, false);
  descend(block, trial);
  keep_best(block, trial, false);
}

}  // namespace curvq::internal
