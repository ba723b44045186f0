// Optimal Brain Surgeon within a block of a row's weights.
#pragma once

#include <cstdint>
#include <vector>

namespace curvq::internal {

// Columns [begin, begin + size) of a layer and C = (H_JJ + 1e-6 mean(diag H) I)^-1, [size, size].
struct HessianBlock {
  int64_t begin = 0, size = 0;
  std::vector<double> inverse;
};

// All columns of h [cols, cols], in blocks of `size` behind a first one of `offset` (0: of `size`).
// Throws NumericalError for a block that no damping makes positive definite.
std::vector<HessianBlock> make_blocks(const std::vector<double>& h, int64_t cols, int64_t size,
                                      int64_t offset);

// Takes weights of one row's block out, the least costly first, while the others make up for each:
// the one with the least t_p^2 / C_pp, then t -= t_p / C_pp C_p and C -= C_p C_p^T / C_pp.
class Elimination {
 public:
  // target [size]: the best values with all of the block's weights, `stride` apart. Of each `group`
  // columns `keep` stay. The block must outlive the object.
  void start(const HessianBlock& block, const double* target, int64_t stride, int64_t keep,
             int64_t group);
  bool done() const { return next_ < 0; }
  // How much the loss rises with the next one; infinite if none may go.
  float cost() const { return cost_; }
  void remove_next();

  const std::vector<float>& value() const { return value_; }    // [size]
  const std::vector<uint8_t>& alive() const { return alive_; }  // [size]

 private:
  float pivot(int64_t i) const;
  void find_next();

  const HessianBlock* block_ = nullptr;
  int64_t size_ = 0, keep_ = 0, group_ = 1, next_ = -1;
  float cost_ = 0;
  std::vector<float> inverse_, value_, column_;
  std::vector<uint8_t> alive_;
};

}  // namespace curvq::internal
