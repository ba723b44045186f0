#include "compress/k_best.h"

#include <algorithm>
#include <numeric>

#include "curvq/linalg/dense.h"

namespace curvq::internal {
namespace {

// Columns whose errors reach the columns behind them together.
constexpr int64_t kBlock = 32;
// Values around a weight that a candidate is continued by.
constexpr int32_t kContinuations = 4;

}  // namespace

KBest::KBest(const float* upper, int64_t n, int64_t ld, int64_t candidates)
    : upper_(upper),
      n_(n),
      ld_(ld),
      most_(candidates),
      weight_(n * candidates),
      error_(std::min(kBlock, n) * candidates),
      loss_(candidates),
      gathered_(candidates),
      origin_(candidates),
      parent_(n * candidates),
      choice_(n * candidates),
      from_(candidates),
      choices_(n) {}

float KBest::search(const float* weight, int64_t stride, const ColumnValues& values) {
  live_ = 1;
  loss_[0] = 0;
  for (int64_t j = 0; j < n_; ++j) weight_[j * most_] = weight[j * stride];
  for (int64_t begin = 0; begin < n_; begin += kBlock) {
    const int64_t end = std::min(n_, begin + kBlock);
    std::iota(origin_.begin(), origin_.end(), 0);
    for (int64_t j = begin; j < end; ++j) round_column(begin, j, end, values[j]);
    if (end == n_) break;
    for (int64_t k = end; k < n_; ++k) gather(weight_.data() + k * most_, origin_);
    add_product_transposed(n_ - end, live_, end - begin, -1.0f, upper_ + begin * ld_ + end, ld_,
                           error_.data(), most_, weight_.data() + end * most_, most_);
  }
  const auto best = std::min_element(loss_.begin(), loss_.begin() + live_);
  auto lane = static_cast<int32_t>(best - loss_.begin());
  const float least = *best;
  for (int64_t j = n_ - 1; j >= 0; --j) {
    choices_[j] = choice_[j * most_ + lane];
    lane = parent_[j * most_ + lane];
  }
  return least;
}

void KBest::gather(float* lanes, const std::vector<int32_t>& from) {
  for (int64_t l = 0; l < live_; ++l) gathered_[l] = lanes[from[l]];
  std::copy_n(gathered_.begin(), live_, lanes);
}

void KBest::round_column(int64_t begin, int64_t j, int64_t end, std::span<const float> values) {
  const float* u = upper_ + j * ld_;
  const float inverse = 1.0f / u[j];
  float* w = weight_.data() + j * most_;
  const auto count = static_cast<int32_t>(values.size());
  pool_.clear();
  for (int32_t lane = 0; lane < live_; ++lane) {
    const auto above = static_cast<int32_t>(
        std::lower_bound(values.begin(), values.end(), w[lane]) - values.begin());
    const int32_t first =
        std::clamp(above - kContinuations / 2, 0, std::max(0, count - kContinuations));
    for (int32_t c = first; c < std::min(count, first + kContinuations); ++c) {
      const float e = (w[lane] - values[c]) * inverse;
      pool_.push_back({loss_[lane] + e * e, lane, c});
    }
  }
  const auto better = [](const Continuation& a, const Continuation& b) {
    if (a.loss != b.loss) return a.loss < b.loss;
    return a.lane != b.lane ? a.lane < b.lane : a.choice < b.choice;
  };
  live_ = std::min(most_, static_cast<int64_t>(pool_.size()));
  std::nth_element(pool_.begin(), pool_.begin() + (live_ - 1), pool_.end(), better);
  for (int64_t l = 0; l < live_; ++l) {
    loss_[l] = pool_[l].loss;
    from_[l] = parent_[j * most_ + l] = pool_[l].lane;
    choice_[j * most_ + l] = pool_[l].choice;
  }
  for (int64_t k = j; k < end; ++k) gather(weight_.data() + k * most_, from_);
  for (int64_t k = begin; k < j; ++k) gather(error_.data() + (k - begin) * most_, from_);
  for (int64_t l = 0; l < live_; ++l) from_[l] = origin_[from_[l]];
  std::copy_n(from_.begin(), live_, origin_.begin());
  float* e = error_.data() + (j - begin) * most_;
  for (int64_t l = 0; l < live_; ++l) e[l] = (w[l] - values[choice_[j * most_ + l]]) * inverse;
  for (int64_t k = j + 1; k < end; ++k) {
    float* later = weight_.data() + k * most_;
    for (int64_t l = 0; l < live_; ++l) later[l] -= u[k] * e[l];
  }
}

}  // namespace curvq::internal
