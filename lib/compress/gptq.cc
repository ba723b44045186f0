#include "curvq/compress/gptq.h"

#include <algorithm>
#include <cmath>

#include "compress/kept_codes.h"
#include "compress/lanes.h"
#include "compress/row_candidates.h"
#include "compress/saliency_order.h"
#include "compress/scale_candidates.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"

namespace curvq {
namespace {

// Rows are independent, so a strip of them goes through all columns while its lazy block of columns
// stays in the first-level cache (128 x 64 floats).
using internal::kStrip;
using internal::StoredScale;

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

  //   mask   of row r and the group's column j at mask[columns[j] * mask_stride + r]; null: all
  void choose(const float* w, const float* upper, int64_t ldu, const int8_t* zero_points,
              const uint8_t* mask, const int64_t* columns, int64_t mask_stride, int64_t count,
              float* scales, uint8_t* scale_codes) {
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
        internal::encode_kept(scheme_, column, trial_values_.data(), zero_points,
                              mask ? mask + columns[j] * mask_stride : nullptr, count,
                              codes_.data(), rounded_.data());
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

}  // namespace

void GptqOptions::validate() const {
  DampingOptions::validate();
  if (block_size < 1) {
    throw UsageError(
        format("block_size is %lld, it must be 1 or more", static_cast<long long>(block_size)));
  }
  if (candidates < 1 || candidates > 4096) {
    throw UsageError(
        format("candidates is %lld, it must be 1 to 4096", static_cast<long long>(candidates)));
  }
  if (diagonal && (candidates > 1 || rounding_order == RoundingOrder::kSaliency))
    throw UsageError("without correlations all orders and candidates are alike");
  if (candidates > 1 && rounding_order == RoundingOrder::kSaliency)
    throw UsageError("candidates are kept in the order of planes, not in that of saliency");
}

GptqResult gptq(const float* weight, const float* hessian, ScaleGrid grid,
                const GptqOptions& options, const std::string& layer, const uint8_t* mask,
                const std::vector<double>& inverse) {
  options.validate();
  const int64_t rows = grid.rows, cols = grid.cols, groups = grid.groups;
  // A power of two is too coarse a choice for the error inside a group to decide.
  const bool search = options.search_scales && internal::can_search_scales(grid.scheme) &&
                      grid.scheme.scale_type != ScaleType::kE8M0;
  const int64_t group_size = search ? grid.scheme.group_size : 1;
  std::vector<float> without_correlations;
  if (options.diagonal) {
    check_hessian(hessian, cols, layer);
    without_correlations.assign(cols * cols, 0.0f);
    for (int64_t j = 0; j < cols; ++j)
      without_correlations[j * cols + j] = std::max(0.0f, hessian[j * cols + j]);
    hessian = without_correlations.data();
  }
  const int64_t together = search ? group_size : 0;
  const PreparedHessian prepared =
      inverse.empty()
          ? prepare_hessian(hessian, cols, options, options.act_order, layer, together)
          : prepare_inverse(hessian, inverse, cols, options, options.act_order, layer, together);
  GptqResult result;
  result.damping = prepared.damping;
  result.raised_because = prepared.raised_because;
  result.dead_inputs = prepared.dead_inputs;
  if (prepared.upper.empty()) {
    result.all_dead = true;
    std::vector<float> values(weight, weight + rows * cols);
    for (int64_t i = 0; mask && i < rows * cols; ++i) values[i] *= mask[i];
    result.matrix = quantize_rtn(values.data(), std::move(grid));
    return result;
  }
  std::vector<float> scales = internal::transposed(grid.scales, rows, groups);
  std::vector<uint8_t> scale_codes = internal::transposed(grid.scale_codes, rows, groups);
  const std::vector<int8_t> zero_points = internal::transposed(grid.zero_points, rows, groups);
  result.matrix = QuantizedMatrix(std::move(grid));
  QuantizedMatrix& matrix = result.matrix;
  const Scheme& scheme = matrix.scheme();
  const float* upper = prepared.upper.data();
  // [cols, rows]
  const std::vector<uint8_t> kept =
      mask ? internal::transposed(std::vector<uint8_t>(mask, mask + rows * cols), rows, cols)
           : std::vector<uint8_t>();
  const internal::ScaleCandidates candidates(matrix.grid);
  const bool by_saliency = options.rounding_order == RoundingOrder::kSaliency;
  // Blocks hold whole groups; by saliency, one whose scales were chosen before its first weight.
  const int64_t block =
      by_saliency && search
          ? group_size
          : std::min(std::max<int64_t>(1, options.block_size / group_size) * group_size, cols);
  std::vector<float> losses(rows, 0.0f);

  parallel_for(0, (rows + kStrip - 1) / kStrip, [&](int64_t strip) {
    const int64_t first = strip * kStrip, count = std::min(kStrip, rows - first);
    std::vector<float> w(cols * kStrip), error(block * kStrip), rounded(kStrip);
    std::vector<uint8_t> codes(kStrip);
    GroupScaleSearch group_search(scheme, candidates, group_size);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t r = 0; r < count; ++r)
        w[j * kStrip + r] = weight[(first + r) * cols + prepared.order[j]];
    }
    const auto zeros_of = [&](int64_t of_group) {
      return zero_points.empty() ? nullptr : zero_points.data() + of_group;
    };
    const auto choose_scales = [&](int64_t j) {
      const int64_t of_group = scheme.group_of(prepared.order[j]) * rows + first;
      group_search.choose(w.data() + j * kStrip, upper + j * cols + j, cols, zeros_of(of_group),
                          mask ? kept.data() + first : nullptr, prepared.order.data() + j, rows,
                          count, scales.data() + of_group,
                          scale_codes.empty() ? nullptr : scale_codes.data() + of_group);
    };
    // Rounds columns [begin, end) of each row by saliency; leaves their errors.
    const auto round_by_saliency = [&](int64_t begin, int64_t end) {
      internal::SaliencyOrder order(upper + begin * cols + begin, end - begin, cols);
      std::vector<internal::SaliencyOrder::Column> columns(end - begin);
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = begin; j < end; ++j) {
          const int64_t column = prepared.order[j];
          const int64_t at = scheme.group_of(column) * rows + first + r;
          internal::SaliencyOrder::Column& of = columns[j - begin];
          of.weight = w[j * kStrip + r];
          of.scale = scales[at];
          of.zero_point = zero_points.empty() ? 0 : zero_points[at];
          of.kept = mask == nullptr || kept[column * rows + first + r] != 0;
        }
        order.round(scheme, columns);
        for (int64_t j = begin; j < end; ++j) {
          matrix.set_code(first + r, prepared.order[j], columns[j - begin].code);
          error[(j - begin) * kStrip + r] = columns[j - begin].error;
        }
      }
    };
    for (int64_t begin = 0; begin < cols; begin += block) {
      const int64_t end = std::min(cols, begin + block);
      if (by_saliency) {
        if (search) choose_scales(begin);
        round_by_saliency(begin, end);
      }
      for (int64_t j = begin; j < end && !by_saliency; ++j) {
        const int64_t column = prepared.order[j], group = scheme.group_of(column);
        const float* u = upper + j * cols;
        float* w_j = w.data() + j * kStrip;
        float* e = error.data() + (j - begin) * kStrip;
        const int64_t of_group = group * rows + first;
        const int8_t* zeros = zeros_of(of_group);
        if (search && j % group_size == 0) choose_scales(j);
        internal::encode_kept(scheme, w_j, scales.data() + of_group, zeros,
                              mask ? kept.data() + column * rows + first : nullptr, count,
                              codes.data(), rounded.data());
        for (int64_t r = 0; r < count; ++r) matrix.set_code(first + r, column, codes[r]);
        internal::scaled_error(e, w_j, rounded.data(), 1.0f / u[j], count);
        for (int64_t k = j + 1; k < end; ++k)
          internal::subtract_scaled(w.data() + k * kStrip, u[k], e, count);
      }
      for (int64_t j = 0; j < end - begin; ++j)
        internal::add_squares(losses.data() + first, error.data() + j * kStrip, count);
      // Lazy update of all columns behind the block.
      add_product_transposed(cols - end, count, end - begin, -1.0f, upper + begin * cols + end,
                             cols, error.data(), kStrip, w.data() + end * kStrip, kStrip);
    }
  });
  if (search) {
    transpose_back(scales, rows, groups, matrix.grid.scales);
    transpose_back(scale_codes, rows, groups, matrix.grid.scale_codes);
  }
  if (options.candidates > 1) {
    internal::choose_among_candidates(weight, prepared, options.candidates, kept, matrix, losses);
  }
  for (const float loss : losses) result.objective += loss;
  result.nearest_plane_bound = internal::nearest_plane_bound(prepared, matrix.grid);
  return result;
}

}  // namespace curvq
