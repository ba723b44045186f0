#include "curvq/compress/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/lanes.h"
#include "compress/scale_candidates.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

// Rows are independent, so a strip of them goes through all columns while its lazy block of columns
// stays in the first-level cache (128 x 64 floats).
using internal::kStrip;
using internal::StoredScale;

void check_finite(const float* h, int64_t n, const std::string& layer) {
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < n * n; ++i) {
    if (!std::isfinite(h[i]) && bad++ == 0) first = i;
  }
  if (bad > 0) {
    throw NumericalError(format(
        "%s: the hessian is not finite in %lld of %lld entries, the first at row %lld, column "
        "%lld; damping will not help, check the activations or the statistics file",
        layer.c_str(), static_cast<long long>(bad), static_cast<long long>(n * n),
        static_cast<long long>(first / n), static_cast<long long>(first % n)));
  }
}

// Row-major [rows, groups] to [groups, rows].
template <typename T>
std::vector<T> transposed(const std::vector<T>& values, int64_t rows, int64_t groups) {
  std::vector<T> out(values.size());
  if (values.empty()) return out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) out[g * rows + r] = values[r * groups + g];
  }
  return out;
}

// [groups, rows] back to row-major [rows, groups].
template <typename T>
void transpose_back(const std::vector<T>& values, int64_t rows, int64_t groups,
                    std::vector<T>& out) {
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i)
    out[i] = values[i % groups * rows + i / groups];
}

// Chooses scales [count] of a group's rows: of all candidates, the one with which GPTQ inside the
// group leaves the smallest sum of e^2, which is what the group adds to the objective.
//   w      [size, kStrip] the group's columns in the order of rounding
//   upper  the group's block of U, row stride ldu
class GroupScaleSearch {
 public:
  GroupScaleSearch(const Scheme& scheme, const internal::ScaleCandidates& candidates, int64_t size)
      : scheme_(scheme),
        candidates_(candidates),
        size_(size),
        columns_(size * kStrip),
        error_(kStrip),
        rounded_(kStrip),
        loss_(kStrip),
        best_loss_(kStrip),
        trial_(kStrip),
        trial_values_(kStrip),
        best_(kStrip),
        codes_(kStrip) {}

  void choose(const float* w, const float* upper, int64_t ldu, const int8_t* zero_points,
              int64_t count, float* scales, uint8_t* scale_codes) {
    for (int64_t c = -1; c < candidates_.count(); ++c) {
      for (int64_t r = 0; r < count; ++r) {
        const StoredScale base = {scales[r], scale_codes ? scale_codes[r] : uint8_t{0}};
        trial_[r] = c < 0 ? base : candidates_.at(c, base);
        trial_values_[r] = trial_[r].value;
      }
      std::fill(loss_.begin(), loss_.end(), 0.0f);
      std::copy_n(w, size_ * kStrip, columns_.data());
      for (int64_t j = 0; j < size_; ++j) {
        float* column = columns_.data() + j * kStrip;
        encode_column(scheme_, column, trial_values_.data(), zero_points, count, codes_.data(),
                      rounded_.data());
        const float* u = upper + j * ldu;
        internal::scaled_error(error_.data(), column, rounded_.data(), 1.0f / u[j], count);
        internal::add_squares(loss_.data(), error_.data(), count);
        for (int64_t k = j + 1; k < size_; ++k)
          internal::subtract_scaled(columns_.data() + k * kStrip, u[k], error_.data(), count);
      }
      for (int64_t r = 0; r < count; ++r) {
        if (c >= 0 && loss_[r] >= best_loss_[r]) continue;
        best_loss_[r] = loss_[r];
        best_[r] = trial_[r];
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      scales[r] = best_[r].value;
      if (scale_codes) scale_codes[r] = best_[r].code;
    }
  }

 private:
  const Scheme& scheme_;
  const internal::ScaleCandidates& candidates_;
  int64_t size_;
  std::vector<float> columns_, error_, rounded_, loss_, best_loss_;
  std::vector<StoredScale> trial_;
  std::vector<float> trial_values_;
  std::vector<StoredScale> best_;
  std::vector<uint8_t> codes_;
};

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

void GptqOptions::validate() const {
  if (!(damping >= 0) || !std::isfinite(damping)) {
    throw UsageError(format("damping is %g, it must be a finite number of 0 or more", damping));
  }
  if (block_size < 1) {
    throw UsageError(
        format("block_size is %lld, it must be 1 or more", static_cast<long long>(block_size)));
  }
  if (max_damping_retries < 0)
    throw UsageError(
        format("max_damping_retries is %d, it must be 0 or more", max_damping_retries));
}

PreparedHessian prepare_hessian(const float* hessian, int64_t n, const GptqOptions& options,
                                const std::string& layer, int64_t group) {
  check_finite(hessian, n, layer);
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
  if (options.act_order == ActOrder::kStatic) {
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

GptqResult gptq(const float* weight, const float* hessian, ScaleGrid grid,
                const GptqOptions& options, const std::string& layer) {
  options.validate();
  const int64_t rows = grid.rows, cols = grid.cols, groups = grid.groups;
  // A power of two is too coarse a choice for the error inside a group to decide.
  const bool search = options.search_scales && internal::can_search_scales(grid.scheme) &&
                      grid.scheme.scale_type != ScaleType::kE8M0;
  const int64_t group_size = search ? grid.scheme.group_size : 1;
  const PreparedHessian prepared =
      prepare_hessian(hessian, cols, options, layer, search ? group_size : 0);
  GptqResult result;
  result.damping = prepared.damping;
  result.dead_inputs = prepared.dead_inputs;
  if (prepared.upper.empty()) {
    result.all_dead = true;
    result.matrix = quantize_rtn(weight, std::move(grid));
    return result;
  }
  std::vector<float> scales = transposed(grid.scales, rows, groups);
  std::vector<uint8_t> scale_codes = transposed(grid.scale_codes, rows, groups);
  const std::vector<int8_t> zero_points = transposed(grid.zero_points, rows, groups);
  result.matrix = QuantizedMatrix(std::move(grid));
  QuantizedMatrix& matrix = result.matrix;
  const Scheme& scheme = matrix.scheme();
  const float* upper = prepared.upper.data();
  const internal::ScaleCandidates candidates(matrix.grid);
  // Blocks hold whole groups.
  const int64_t block =
      std::min(std::max<int64_t>(1, options.block_size / group_size) * group_size, cols);

  parallel_for(0, (rows + kStrip - 1) / kStrip, [&](int64_t strip) {
    const int64_t first = strip * kStrip, count = std::min(kStrip, rows - first);
    std::vector<float> w(cols * kStrip), error(block * kStrip), rounded(kStrip);
    std::vector<uint8_t> codes(kStrip);
    GroupScaleSearch group_search(scheme, candidates, group_size);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t r = 0; r < count; ++r)
        w[j * kStrip + r] = weight[(first + r) * cols + prepared.order[j]];
    }
    for (int64_t begin = 0; begin < cols; begin += block) {
      const int64_t end = std::min(cols, begin + block);
      for (int64_t j = begin; j < end; ++j) {
        const int64_t column = prepared.order[j], group = scheme.group_of(column);
        const float* u = upper + j * cols;
        float* w_j = w.data() + j * kStrip;
        float* e = error.data() + (j - begin) * kStrip;
        const int64_t of_group = group * rows + first;
        const int8_t* zeros = zero_points.empty() ? nullptr : zero_points.data() + of_group;
        if (search && j % group_size == 0) {
          group_search.choose(w_j, u + j, cols, zeros, count, scales.data() + of_group,
                              scale_codes.empty() ? nullptr : scale_codes.data() + of_group);
        }
        encode_column(scheme, w_j, scales.data() + of_group, zeros, count, codes.data(),
                      rounded.data());
        for (int64_t r = 0; r < count; ++r) matrix.set_code(first + r, column, codes[r]);
        internal::scaled_error(e, w_j, rounded.data(), 1.0f / u[j], count);
        for (int64_t k = j + 1; k < end; ++k)
          internal::subtract_scaled(w.data() + k * kStrip, u[k], e, count);
      }
      // Lazy update of all columns behind the block.
      add_product_transposed(cols - end, count, end - begin, -1.0f, upper + begin * cols + end,
                             cols, error.data(), kStrip, w.data() + end * kStrip, kStrip);
    }
  });
  if (search) {
    transpose_back(scales, rows, groups, matrix.grid.scales);
    transpose_back(scale_codes, rows, groups, matrix.grid.scale_codes);
  }
  return result;
}

}  // namespace curvq
