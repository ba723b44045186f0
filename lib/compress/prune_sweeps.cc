#include <algorithm>
#include <array>
#include <cmath>
#include <queue>

#include "compress/elimination.h"
#include "compress/lanes.h"
#include "curvq/compress/prune.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"

namespace curvq {
namespace {

using internal::Elimination;
using internal::HessianBlock;
using internal::kStrip;

// Of conjugate gradients, each time.
constexpr int kSteps = 10;
// Columns of a block. Where rows compete, larger ones find better masks, at a cost in proportion;
// for N:M a greedy choice in a large block is often worse than the present one.
constexpr int64_t kBlock = 64, kStructuredBlock = 32;

// Rows [first, first + count) of the matrix. All arrays are [column][kStrip]; lanes without a row
// hold zeros.
class StripSweeps {
 public:
  StripSweeps(const float* weight, const std::vector<double>& h, const SparsityPattern& pattern,
              PrunedMatrix& pruned, int64_t first)
      : h_(h),
        pattern_(pattern),
        pruned_(pruned),
        first_(first),
        count_(std::min(kStrip, pruned.rows - first)),
        cols_(pruned.cols),
        weight_(cols_ * kStrip, 0.0),
        mask_(cols_ * kStrip, 0),
        difference_(cols_ * kStrip, 0.0),
        product_(cols_ * kStrip, 0.0) {
    for (int64_t r = 0; r < count_; ++r) {
      for (int64_t j = 0; j < cols_; ++j) {
        const int64_t i = (first_ + r) * cols_ + j, at = j * kStrip + r;
        weight_[at] = weight[i];
        mask_[at] = pruned.mask[i];
        difference_[at] = weight_[at] - pruned.weight[i];
      }
    }
    multiply(difference_, product_);
  }

  double objective() const {
    double sum = 0;
    for (size_t i = 0; i < product_.size(); ++i) sum += difference_[i] * product_[i];
    return sum;
  }

  // Conjugate gradients on the kept weights, each lane a problem of its own.
  void fit() {
    std::vector<double> step(cols_ * kStrip, 0.0), image(cols_ * kStrip);
    Lanes last{};
    for (int i = 0; i < kSteps; ++i) {
      Lanes slope{}, curvature{}, turn{}, length{};
      for_kept([&](int64_t at, int64_t r, double diagonal) {
        slope[r] += product_[at] * product_[at] / diagonal;
      });
      for (int64_t r = 0; r < count_; ++r) turn[r] = last[r] > 0 ? slope[r] / last[r] : 0;
      for_kept([&](int64_t at, int64_t r, double diagonal) {
        step[at] = product_[at] / diagonal + turn[r] * step[at];
      });
      std::fill(image.begin(), image.end(), 0.0);
      multiply(step, image);
      for_kept([&](int64_t at, int64_t r, double) { curvature[r] += step[at] * image[at]; });
      for (int64_t r = 0; r < count_; ++r)
        length[r] = curvature[r] > 0 ? slope[r] / curvature[r] : 0;
      for (int64_t at = 0; at < cols_ * kStrip; ++at) {
        difference_[at] -= length[at % kStrip] * step[at];
        product_[at] -= length[at % kStrip] * image[at];
      }
      last = slope;
    }
  }

  void improve(const HessianBlock& block) {
    const std::vector<double> target = targets(block);
    const int64_t keep = pattern_.structured() ? pattern_.keep : 0;
    const int64_t group = pattern_.structured() ? pattern_.group : block.size;
    for (int64_t r = 0; r < count_; ++r) {
      lanes_[r].start(block, target.data() + r, kStrip, keep, group);
      while (pattern_.structured() && !lanes_[r].done()) lanes_[r].remove_next();
    }
    if (!pattern_.structured()) compete(block);
    accept(block);
  }

  // The kept weights, rounded to float32.
  void store() {
    for (int64_t r = 0; r < count_; ++r) {
      for (int64_t j = 0; j < cols_; ++j) {
        const int64_t at = j * kStrip + r, i = (first_ + r) * cols_ + j;
        pruned_.mask[i] = mask_[at];
        pruned_.weight[i] = mask_[at] ? static_cast<float>(value(at)) : 0.0f;
      }
    }
  }

 private:
  using Lanes = std::array<double, kStrip>;

  double value(int64_t at) const { return weight_[at] - difference_[at]; }

  // out += H x.
  void multiply(const std::vector<double>& x, std::vector<double>& out) const {
    add_product_transposed(cols_, kStrip, cols_, 1.0, h_.data(), cols_, x.data(), kStrip,
                           out.data(), kStrip);
  }

  // Kept weights of inputs that are ever non-zero.
  template <typename Work>
  void for_kept(const Work& work) const {
    for (int64_t j = 0; j < cols_; ++j) {
      const double diagonal = h_[j * cols_ + j];
      for (int64_t r = 0; r < count_ && diagonal > 0; ++r) {
        if (mask_[j * kStrip + r]) work(j * kStrip + r, r, diagonal);
      }
    }
  }

  // t = q + C P_J, [block.size][kStrip].
  std::vector<double> targets(const HessianBlock& block) const {
    std::vector<double> out(block.size * kStrip);
    for (size_t i = 0; i < out.size(); ++i) out[i] = value(block.begin * kStrip + i);
    add_product_transposed(block.size, kStrip, block.size, 1.0, block.inverse.data(), block.size,
                           product_.data() + block.begin * kStrip, kStrip, out.data(), kStrip);
    return out;
  }

  // Weights go where they cost least until as many are left in the strip's block as before.
  void compete(const HessianBlock& block) {
    int64_t surplus = count_ * block.size;
    for (int64_t i = block.begin * kStrip; i < (block.begin + block.size) * kStrip; ++i)
      surplus -= mask_[i];
    using Offer = std::pair<float, int64_t>;
    std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
    for (int64_t r = 0; r < count_; ++r) offers.emplace(lanes_[r].cost(), r);
    for (; surplus > 0; --surplus) {
      const int64_t r = offers.top().second;
      offers.pop();
      lanes_[r].remove_next();
      offers.emplace(lanes_[r].cost(), r);
    }
  }

  // Takes the new values, d = q' - q, where they lower f by 2 d P_J^T - d H_JJ d^T > 0: a row whose
  // number of weights stays by itself, the others if they do together.
  void accept(const HessianBlock& block) {
    const int64_t size = block.size, begin = block.begin * kStrip;
    std::vector<double> change(size * kStrip, 0.0), image(size * kStrip, 0.0);
    for (int64_t r = 0; r < count_; ++r) {
      for (int64_t i = r; i < size * kStrip; i += kStrip)
        change[i] = lanes_[r].value()[i / kStrip] - value(begin + i);
    }
    add_product_transposed(size, kStrip, size, 1.0, h_.data() + block.begin * cols_ + block.begin,
                           cols_, change.data(), kStrip, image.data(), kStrip);
    Lanes gain{}, scale{}, more{};
    for (int64_t r = 0; r < count_; ++r) {
      for (int64_t i = r; i < size * kStrip; i += kStrip) {
        const double linear = 2 * change[i] * product_[begin + i], square = change[i] * image[i];
        gain[r] += linear - square;
        scale[r] += std::fabs(linear) + std::fabs(square);
        more[r] += lanes_[r].alive()[i / kStrip] - mask_[begin + i];
      }
    }
    double joint_gain = 0, joint_scale = 0;
    for (int64_t r = 0; r < count_; ++r) {
      if (more[r] == 0) continue;
      joint_gain += gain[r];
      joint_scale += scale[r];
    }
    constexpr double kRounding = 1e-9;  // gains below this share of their terms may be rounding
    const bool joint = joint_gain > kRounding * joint_scale;
    for (int64_t r = 0; r < count_; ++r) {
      const bool taken = more[r] == 0 ? gain[r] > kRounding * scale[r] : joint;
      for (int64_t i = r; i < size * kStrip; i += kStrip) {
        if (!taken) change[i] = 0;
        if (taken) mask_[begin + i] = lanes_[r].alive()[i / kStrip];
        difference_[begin + i] -= change[i];
      }
    }
    add_product_transposed(cols_, kStrip, size, -1.0, h_.data() + block.begin * cols_, cols_,
                           change.data(), kStrip, product_.data(), kStrip);
  }

  const std::vector<double>& h_;  // [cols, cols]
  const SparsityPattern& pattern_;
  PrunedMatrix& pruned_;
  int64_t first_, count_, cols_;
  std::vector<double> weight_;
  std::vector<uint8_t> mask_;
  std::vector<double> difference_, product_;  // D and P
  std::array<Elimination, kStrip> lanes_;
};

}  // namespace

std::vector<double> improve_pruned(const float* weight, const float* hessian,
                                   const SparsityPattern& pattern, int sweeps,
                                   PrunedMatrix& pruned) {
  const int64_t rows = pruned.rows, cols = pruned.cols;
  const std::vector<double> h(hessian, hessian + cols * cols);
  const int64_t unit = pattern.structured() ? pattern.group : 1;
  const int64_t size =
      pattern.structured() ? std::max<int64_t>(1, kStructuredBlock / unit) * unit : kBlock;
  // Every second sweep cuts the columns in other places.
  const std::vector<HessianBlock> blocks[] = {
      internal::make_blocks(h, cols, size, 0),
      internal::make_blocks(h, cols, size, size / unit / 2 * unit)};
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  std::vector<double> of_strip(strips * (sweeps + 1));
  parallel_for(0, strips, [&](int64_t s) {
    StripSweeps strip(weight, h, pattern, pruned, s * kStrip);
    double* f = of_strip.data() + s * (sweeps + 1);
    f[0] = strip.objective();
    if (sweeps > 0) strip.fit();
    for (int sweep = 1; sweep <= sweeps; ++sweep) {
      for (const HessianBlock& block : blocks[(sweep + 1) % 2]) strip.improve(block);
      strip.fit();
      f[sweep] = strip.objective();
    }
    strip.store();
  });
  std::vector<double> f(sweeps + 1, 0.0);
  for (int64_t s = 0; s < strips; ++s) {
    for (int sweep = 0; sweep <= sweeps; ++sweep) f[sweep] += of_strip[s * (sweeps + 1) + sweep];
  }
  return f;
}

}  // namespace curvq
