#include "curvq/compress/refine.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "compress/lanes.h"
#include "compress/scale_candidates.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"
#include "curvq/linalg/symmetric_solver.h"

namespace curvq {
namespace {

using internal::kStrip;
using internal::StoredScale;

// Columns [begin, begin + size) with what they need of H.
struct Block {
  int64_t begin = 0, size = 0;
  std::vector<double> factor;  // L of H_JJ (+ 1e-6 of the mean diagonal), row-major
  std::vector<float> hessian;  // H_JJ
};

std::vector<Block> make_blocks(const Scheme& scheme, const std::vector<double>& h, int64_t cols) {
  constexpr int64_t kColumnsWithoutGroup = 64;
  const int64_t size =
      internal::can_search_scales(scheme) ? scheme.group_size : kColumnsWithoutGroup;
  double mean = 0;
  for (int64_t i = 0; i < cols; ++i) mean += h[i * cols + i] / static_cast<double>(cols);
  std::vector<Block> blocks((cols + size - 1) / size);
  for (size_t b = 0; b < blocks.size(); ++b) {
    Block& block = blocks[b];
    block.begin = static_cast<int64_t>(b) * size;
    block.size = std::min(size, cols - block.begin);
    block.factor.resize(block.size * block.size);
    for (int64_t i = 0; i < block.size; ++i) {
      for (int64_t j = 0; j < block.size; ++j) {
        block.factor[i * block.size + j] = h[(block.begin + i) * cols + block.begin + j];
      }
    }
    block.hessian.assign(block.factor.begin(), block.factor.end());
    const std::unique_ptr<SymmetricSolver> solver = make_symmetric_solver();
    const std::vector<double> undamped = block.factor;
    for (double damping = 1e-6;; damping *= 100) {
      for (int64_t i = 0; i < block.size; ++i) {
        const double pad = mean > 0 ? damping * mean : 1.0;
        block.factor[i * block.size + i] = undamped[i * block.size + i] + pad;
      }
      if (solver->cholesky(block.size, block.factor.data())) break;
      if (damping > 1)
        throw NumericalError("the hessian has a block that is not positive definite");
      block.factor = undamped;
    }
  }
  return blocks;
}

// Rows [first, first + count) of the matrix. All arrays are [column][kStrip].
class StripDescent {
 public:
  StripDescent(const float* weight, const std::vector<double>& h, QuantizedMatrix& matrix,
               const internal::ScaleCandidates& candidates, bool search_scales, int64_t first)
      : h_(h),
        matrix_(matrix),
        candidates_(candidates),
        search_scales_(search_scales),
        first_(first),
        count_(std::min(kStrip, matrix.rows() - first)),
        cols_(matrix.cols()),
        difference_(cols_ * kStrip, 0.0),
        product_(cols_ * kStrip, 0.0) {
    std::vector<float> row(cols_);
    for (int64_t r = 0; r < count_; ++r) {
      dequantize_row(matrix, first_ + r, 0, cols_, row.data());
      for (int64_t j = 0; j < cols_; ++j) {
        difference_[j * kStrip + r] =
            static_cast<double>(weight[(first_ + r) * cols_ + j]) - static_cast<double>(row[j]);
      }
    }
    add_product_transposed(cols_, kStrip, cols_, 1.0, h.data(), cols_, difference_.data(), kStrip,
                           product_.data(), kStrip);
  }

  // tr(D H D^T) of the strip.
  double objective() const {
    double sum = 0;
    for (size_t i = 0; i < product_.size(); ++i) sum += difference_[i] * product_[i];
    return sum;
  }

  void improve(const Block& block) {
    prepare(block);
    const Trial present = trial_of(present_scales_);
    std::copy(present_.begin(), present_.end(), rounded_.begin());
    descend(block, present);
    keep_best(block, present, true);
    nearest_plane(block, present);
    descend(block, present);
    keep_best(block, present, false);
    if (search_scales_) {
      for (int64_t c = 0; c < candidates_.count(); ++c) {
        std::vector<StoredScale> scales(kStrip);
        for (int64_t r = 0; r < count_; ++r) scales[r] = candidates_.at(c, present_scales_[r]);
        const Trial trial = trial_of(scales);
        nearest_plane(block, trial);
        descend(block, trial);
        keep_best(block, trial, false);
      }
      if (matrix_.scheme().element == ElementType::kInt) refit(block);
    }
    accept(block);
  }

 private:
  struct Trial {
    std::vector<StoredScale> scales;
    std::vector<float> values;
  };

  Trial trial_of(std::vector<StoredScale> scales) const {
    Trial trial;
    trial.scales = std::move(scales);
    trial.values.resize(kStrip, 1.0f);
    for (int64_t r = 0; r < count_; ++r) trial.values[r] = trial.scales[r].value;
    return trial;
  }

  int64_t group_of(const Block& block) const { return matrix_.scheme().group_of(block.begin); }

  // Present values and scales, and the targets t = q + H_JJ^-1 P_J.
  void prepare(const Block& block) {
    const int64_t size = block.size, group = group_of(block);
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
    std::vector<double> shift(product_.begin() + block.begin * kStrip,
                              product_.begin() + (block.begin + size) * kStrip);
    const double* l = block.factor.data();
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t k = 0; k < i; ++k) add_lanes(shift, i, -l[i * size + k], k);
      scale_lanes(shift, i, 1 / l[i * size + i]);
    }
    for (int64_t i = size - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < size; ++k) add_lanes(shift, i, -l[k * size + i], k);
      scale_lanes(shift, i, 1 / l[i * size + i]);
    }
    for (int64_t i = 0; i < size * kStrip; ++i)
      target_[i] = static_cast<float>(present_[i] + shift[i]);
  }

  static void add_lanes(std::vector<double>& x, int64_t to, double a, int64_t from) {
    double* y = x.data() + to * kStrip;
    const double* z = x.data() + from * kStrip;
    for (int64_t r = 0; r < kStrip; ++r) y[r] += a * z[r];
  }
  static void scale_lanes(std::vector<double>& x, int64_t at, double a) {
    for (int64_t r = 0; r < kStrip; ++r) x[at * kStrip + r] *= a;
  }

  // Rounds what column_ holds into column j of rounded_, and sets its distance from the target.
  void round_column(int64_t j, const Trial& trial) {
    encode_column(matrix_.scheme(), column_.data(), trial.values.data(),
                  zero_points_.empty() ? nullptr : zero_points_.data(), count_,
                  codes_.data() + j * kStrip, rounded_.data() + j * kStrip);
    internal::scaled_error(distance_.data() + j * kStrip, target_.data() + j * kStrip,
                           rounded_.data() + j * kStrip, 1.0f, count_);
  }

  void nearest_plane(const Block& block, const Trial& trial) {
    const int64_t size = block.size;
    for (int64_t i = size - 1; i >= 0; --i) {
      std::copy_n(target_.data() + i * kStrip, kStrip, column_.data());
      const double pivot = block.factor[i * size + i];
      for (int64_t k = i + 1; k < size; ++k) {
        internal::subtract_scaled(column_.data(),
                                  static_cast<float>(-block.factor[k * size + i] / pivot),
                                  distance_.data() + k * kStrip, count_);
      }
      round_column(i, trial);
    }
  }

  // One pass of coordinate descent from rounded_.
  void descend(const Block& block, const Trial& trial) {
    const int64_t size = block.size;
    for (int64_t i = 0; i < size; ++i) {
      internal::scaled_error(distance_.data() + i * kStrip, target_.data() + i * kStrip,
                             rounded_.data() + i * kStrip, 1.0f, count_);
    }
    for (int64_t i = 0; i < size; ++i) {
      const float* h = block.hessian.data() + i * size;
      std::copy_n(target_.data() + i * kStrip, kStrip, column_.data());
      for (int64_t k = 0; k < size; ++k) {
        if (k != i && h[i] > 0) {
          internal::subtract_scaled(column_.data(), -h[k] / h[i], distance_.data() + k * kStrip,
                                    count_);
        }
      }
      round_column(i, trial);
    }
  }

  // loss = z H_JJ z^T; takes over what is better than the best so far.
  void keep_best(const Block& block, const Trial& trial, bool first) {
    const int64_t size = block.size;
    std::fill(loss_.begin(), loss_.end(), 0.0f);
    for (int64_t i = 0; i < size; ++i) {
      std::fill(column_.begin(), column_.end(), 0.0f);
      for (int64_t k = 0; k < size; ++k) {
        internal::subtract_scaled(column_.data(), -block.hessian[i * size + k],
                                  distance_.data() + k * kStrip, count_);
      }
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
  void refit(const Block& block) {
    const int64_t size = block.size;
    std::vector<StoredScale> scales = best_scales_;
    for (int64_t r = 0; r < count_; ++r) {
      double with_target = 0, with_self = 0;
      for (int64_t i = 0; i < size; ++i) {
        double h_c = 0;
        for (int64_t k = 0; k < size; ++k)
          h_c += static_cast<double>(block.hessian[i * size + k]) * best_rounded_[k * kStrip + r];
        with_target += h_c * target_[i * kStrip + r];
        with_self += h_c * best_rounded_[i * kStrip + r];
      }
      const double factor = with_self > 0 ? with_target / with_self : 1;
      const float fitted = round_to_dtype(static_cast<float>(factor * scales[r].value),
                                          matrix_.scheme().scale_dtype);
      if (factor > 0.5 && factor < 2 && std::isfinite(fitted) && fitted != 0)
        scales[r].value = fitted;
    }
    const Trial trial = trial_of(std::move(scales));
    std::copy(best_rounded_.begin(), best_rounded_.end(), rounded_.begin());
    descend(block, trial);
    keep_best(block, trial, false);
  }

  // Makes the best change of each row that lowers f: by 2 d P_J^T - d H_JJ d^T, d = q' - q.
  void accept(const Block& block) {
    const int64_t size = block.size, group = group_of(block);
    ScaleGrid& grid = matrix_.grid;
    std::vector<double> change(size * kStrip, 0.0);
    bool any = false;
    for (int64_t r = 0; r < count_; ++r) {
      double gain = 0, scale = 0;
      for (int64_t i = 0; i < size; ++i) {
        const double d = static_cast<double>(best_rounded_[i * kStrip + r]) -
                         static_cast<double>(present_[i * kStrip + r]);
        double h_d = 0;
        for (int64_t k = 0; k < size; ++k) {
          h_d += h_[(block.begin + i) * cols_ + block.begin + k] *
                 (static_cast<double>(best_rounded_[k * kStrip + r]) -
                  static_cast<double>(present_[k * kStrip + r]));
        }
        const double linear = 2 * d * product_[(block.begin + i) * kStrip + r];
        gain += linear - d * h_d;
        scale += std::fabs(linear) + std::fabs(d * h_d);
      }
      if (!(gain > 1e-9 * scale)) continue;  // below that it may be rounding
      any = true;
      const int64_t at = (first_ + r) * grid.groups + group;
      grid.scales[at] = best_scales_[r].value;
      if (!grid.scale_codes.empty()) grid.scale_codes[at] = best_scales_[r].code;
      for (int64_t i = 0; i < size; ++i) {
        matrix_.set_code(first_ + r, block.begin + i, best_codes_[i * kStrip + r]);
        change[i * kStrip + r] = static_cast<double>(best_rounded_[i * kStrip + r]) -
                                 static_cast<double>(present_[i * kStrip + r]);
      }
    }
    if (!any) return;
    for (int64_t i = 0; i < size * kStrip; ++i) difference_[block.begin * kStrip + i] -= change[i];
    add_product_transposed(cols_, kStrip, size, -1.0, h_.data() + block.begin * cols_, cols_,
                           change.data(), kStrip, product_.data(), kStrip);
  }

  const std::vector<double>& h_;  // [cols, cols]
  QuantizedMatrix& matrix_;
  const internal::ScaleCandidates& candidates_;
  bool search_scales_;
  int64_t first_, count_, cols_;
  std::vector<double> difference_, product_;  // D and P
  // Of the block at hand.
  std::vector<float> present_, target_, rounded_, distance_, best_rounded_, column_;
  std::vector<float> loss_, best_loss_;
  std::vector<uint8_t> codes_, best_codes_;
  std::vector<int8_t> zero_points_;
  std::vector<StoredScale> present_scales_, best_scales_;
};

}  // namespace

void RefineOptions::validate() const {
  if (sweeps < 0) throw UsageError(format("sweeps is %d, it must be 0 or more", sweeps));
}

std::vector<double> refine(const float* weight, const float* hessian, QuantizedMatrix& matrix,
                           const RefineOptions& options) {
  options.validate();
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  const std::vector<double> h(hessian, hessian + cols * cols);
  const std::vector<Block> blocks = make_blocks(matrix.scheme(), h, cols);
  const internal::ScaleCandidates candidates(matrix.grid);
  const bool search = options.search_scales && internal::can_search_scales(matrix.scheme());
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  std::vector<double> of_strip(strips * (options.sweeps + 1));
  parallel_for(0, strips, [&](int64_t s) {
    StripDescent strip(weight, h, matrix, candidates, search, s * kStrip);
    double* f = of_strip.data() + s * (options.sweeps + 1);
    f[0] = strip.objective();
    for (int sweep = 1; sweep <= options.sweeps; ++sweep) {
      for (const Block& block : blocks) strip.improve(block);
      f[sweep] = strip.objective();
    }
  });
  std::vector<double> f(options.sweeps + 1, 0.0);
  for (int64_t s = 0; s < strips; ++s) {
    for (int sweep = 0; sweep <= options.sweeps; ++sweep)
      f[sweep] += of_strip[s * (options.sweeps + 1) + sweep];
  }
  return f;
}

}  // namespace curvq
