#include "compress/obs_mask.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/lanes.h"
#include "compress/saliency_mask.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"

namespace curvq::internal {
namespace {

class ColumnPass {
 public:
  ColumnPass(const PruneProblem& problem, const std::vector<float>& upper,
             const SparsityPattern& pattern)
      : problem_(problem),
        upper_(upper),
        pattern_(pattern),
        rows_(problem.rows),
        cols_(problem.cols),
        strips_((problem.rows + kStrip - 1) / kStrip),
        weight_(strips_ * cols_ * kStrip, 0.0f),
        mask_(rows_ * cols_, 1),
        price_(cols_) {
    for (int64_t j = 0; j < cols_; ++j) {
      const float pivot = upper[j * cols_ + j];
      price_[j] = problem.hessian[j * cols_ + j] == 0 ? 0 : 1 / (pivot * pivot);
    }
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t j = 0; j < cols_; ++j) at(r, j) = problem.weight[r * cols_ + j];
    }
  }

  void run(int64_t block_size) {
    if (pattern_.structured())
      block_size = std::max<int64_t>(1, block_size / pattern_.group) * pattern_.group;
    for (int64_t begin = 0; begin < cols_; begin += block_size) {
      const int64_t end = std::min(cols_, begin + block_size);
      if (!pattern_.structured()) choose_in_block(begin, end);
      parallel_for(0, strips_, [&](int64_t strip) { eliminate(strip, begin, end); });
    }
  }

  PrunedMatrix result() && {
    PrunedMatrix out{rows_, cols_, std::vector<float>(rows_ * cols_), std::move(mask_)};
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t j = 0; j < cols_; ++j) out.weight[r * cols_ + j] = at(r, j);
    }
    return out;
  }

 private:
  // Strips of rows, each [column][kStrip].
  float* column(int64_t strip, int64_t j) { return weight_.data() + (strip * cols_ + j) * kStrip; }
  float& at(int64_t r, int64_t j) { return column(r / kStrip, j)[r % kStrip]; }
  float saliency(int64_t r, int64_t j) { return at(r, j) * at(r, j) * price_[j]; }

  // The weights of a block that go, compared over all rows.
  void choose_in_block(int64_t begin, int64_t end) {
    const int64_t size = end - begin;
    std::vector<float> saliencies(rows_ * size);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t j = begin; j < end; ++j) saliencies[r * size + j - begin] = saliency(r, j);
    }
    const int64_t wanted = std::llround(pattern_.sparsity * static_cast<double>(rows_ * end));
    for (const int64_t i : smallest(saliencies, wanted - gone_))
      mask_[i / size * cols_ + begin + i % size] = 0;
    gone_ = wanted;
  }

  // Of the group of row r that begins at column j.
  void choose_in_group(int64_t r, int64_t j) {
    std::vector<float> saliencies(pattern_.group);
    for (int64_t k = 0; k < pattern_.group; ++k) saliencies[k] = saliency(r, j + k);
    for (const int64_t k : smallest(saliencies, pattern_.group - pattern_.keep))
      mask_[r * cols_ + j + k] = 0;
  }

  void eliminate(int64_t strip, int64_t begin, int64_t end) {
    const int64_t first = strip * kStrip, count = std::min(kStrip, rows_ - first);
    std::vector<float> error((end - begin) * kStrip, 0.0f), kept(kStrip, 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      if (pattern_.structured() && j % pattern_.group == 0) {
        for (int64_t r = first; r < first + count; ++r) choose_in_group(r, j);
      }
      float* w = column(strip, j);
      float* e = error.data() + (j - begin) * kStrip;
      for (int64_t r = 0; r < count; ++r) kept[r] = mask_[(first + r) * cols_ + j] ? w[r] : 0;
      const float* u = upper_.data() + j * cols_;
      scaled_error(e, w, kept.data(), 1.0f / u[j], kStrip);
      std::copy(kept.begin(), kept.end(), w);
      for (int64_t k = j + 1; k < end; ++k) subtract_scaled(column(strip, k), u[k], e, kStrip);
    }
    add_product_transposed(cols_ - end, kStrip, end - begin, -1.0f,
                           upper_.data() + begin * cols_ + end, cols_, error.data(), kStrip,
                           column(strip, end), kStrip);
  }

  const PruneProblem& problem_;
  const std::vector<float>& upper_;
  const SparsityPattern& pattern_;
  int64_t rows_, cols_, strips_, gone_ = 0;
  std::vector<float> weight_;
  std::vector<uint8_t> mask_;
  std::vector<float> price_;  // 1 / U_jj^2; 0: the input is always zero
};

}  // namespace

PrunedMatrix prune_by_elimination(const PruneProblem& problem, const std::vector<float>& upper,
                                  const SparsityPattern& pattern, int64_t block_size) {
  ColumnPass pass(problem, upper, pattern);
  pass.run(block_size);
  return std::move(pass).result();
}

}  // namespace curvq::internal
