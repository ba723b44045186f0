// How sparse each layer gets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq::internal {

// Counts of saliencies by their upper 16 bits (sign, exponent, seven bits of the mantissa), so that
// those of all layers can be compared while none is kept: a bin is 0.8 % wide.
class SaliencyHistogram {
 public:
  SaliencyHistogram() : counts_(1 << 15, 0) {}
  void add(float saliency);  // below zero counts as zero
  int64_t total() const { return total_; }
  int64_t count(size_t bin) const { return counts_[bin]; }
  size_t bins() const { return counts_.size(); }

 private:
  std::vector<int64_t> counts_;
  int64_t total_ = 0;
};

// The share of each layer below one threshold for all, the threshold being such that `sparsity` of
// all weights goes; no layer loses more than `most` of its weights. In a bin that the threshold
// cuts, layers lose in proportion.
std::vector<double> shares_below_threshold(const std::vector<SaliencyHistogram>& layers,
                                           double sparsity, double most);

// Mean squares of a linear layer's inputs [in] and of the gradients in its outputs [out], of the
// negative log likelihood of labels drawn from the model's own softmax: diagonals of the Kronecker
// factors of the Fisher matrix, so that w_ij^2 A_j G_i / 2 is what the loss rises by without w_ij.
struct FactorDiagonals {
  torch::Tensor inputs, gradients;
};

// Of every linear layer: [layer][linear, in the order of block_linears()].
//   ids [n, t] int64
std::vector<std::vector<FactorDiagonals>> factor_diagonals(const DecoderModel& model,
                                                           const torch::Tensor& ids, uint64_t seed);

}  // namespace curvq::internal
