#include "compress/elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "compress/lanes.h"
#include "curvq/core/error.h"
#include "curvq/linalg/symmetric_solver.h"

namespace curvq::internal {

std::vector<HessianBlock> make_blocks(const std::vector<double>& h, int64_t cols, int64_t size,
                                      int64_t offset) {
  double mean = 0;
  for (int64_t i = 0; i < cols; ++i) mean += h[i * cols + i] / static_cast<double>(cols);
  const std::unique_ptr<SymmetricSolver> solver = make_symmetric_solver();
  std::vector<HessianBlock> blocks;
  for (int64_t begin = 0, end; begin < cols; begin = end) {
    end = std::min(cols, begin == 0 && offset > 0 ? offset : begin + size);
    const int64_t n = end - begin;
    HessianBlock block{begin, n, std::vector<double>(n * n)};
    for (double damping = 1e-6;; damping *= 100) {
      for (int64_t i = 0; i < n; ++i) {
        std::copy_n(h.data() + (begin + i) * cols + begin, n, block.inverse.data() + i * n);
        block.inverse[i * n + i] += mean > 0 ? damping * mean : 1.0;
      }
      if (solver->inverse(n, block.inverse.data())) break;
      if (damping > 1)
        throw NumericalError("the hessian has a block that is not positive definite");
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

void Elimination::start(const HessianBlock& block, const double* target, int64_t stride,
                        int64_t keep, int64_t group) {
  block_ = &block;
  size_ = block.size;
  keep_ = keep;
  group_ = group;
  inverse_.assign(block.inverse.begin(), block.inverse.end());
  value_.resize(size_);
  for (int64_t i = 0; i < size_; ++i) value_[i] = static_cast<float>(target[i * stride]);
  alive_.assign(size_, 1);
  find_next();
}

void Elimination::remove_next() {
  column_.assign(inverse_.begin() + next_ * size_, inverse_.begin() + (next_ + 1) * size_);
  const float c = pivot(next_);
  subtract_scaled(value_.data(), value_[next_] / c, column_.data(), size_);
  for (int64_t i = 0; i < size_; ++i) {
    if (alive_[i])
      subtract_scaled(inverse_.data() + i * size_, column_[i] / c, column_.data(), size_);
  }
  alive_[next_] = 0;
  for (int64_t i = 0; i < size_; ++i) {
    if (!alive_[i]) value_[i] = 0;
  }
  find_next();
}

// C_ii, which falls with each removal, but not below what float32 can tell from zero.
float Elimination::pivot(int64_t i) const {
  return std::max(inverse_[i * size_ + i],
                  1e-6f * static_cast<float>(block_->inverse[i * size_ + i]));
}

void Elimination::find_next() {
  next_ = -1;
  cost_ = std::numeric_limits<float>::infinity();
  for (int64_t begin = 0; begin < size_; begin += group_) {
    if (std::count(alive_.begin() + begin, alive_.begin() + begin + group_, 1) <= keep_) continue;
    for (int64_t i = begin; i < begin + group_; ++i) {
      if (!alive_[i]) continue;
      const float cost = value_[i] * value_[i] / pivot(i);
      if (next_ >= 0 && !(cost < cost_)) continue;
      next_ = i;
      cost_ = std::isfinite(cost) ? cost : std::numeric_limits<float>::max();
    }
  }
}

}  // namespace curvq::internal
