// Gradients to send back from a model's outputs so that sums of g g^T become a Fisher matrix.
#pragma once

#include <torch/torch.h>

#include "curvq/curvature/kfac.h"

namespace curvq {

// A class for each row of p [M, C], drawn with its probability: [M, 1]. One running sum and a
// search, where torch::multinomial takes a logarithm of every class. On the host.
torch::Tensor sample_labels(const torch::Tensor& p, torch::Generator generator);

// Throws UsageError for options that do not fit: a sample has `terms` loss terms with `outputs`
// outputs each.
void check_labels(const KfacOptions& options, int64_t terms, int64_t outputs);

// How many gradients each loss term counts for in the mean.
inline int64_t label_weight(const KfacOptions& options) {
  return options.labels == KfacLabels::kSampled ? options.draws : 1;
}

// One set of gradients [outputs' shape] a backward pass. A sample's terms all take part in a pass
// unless labels are exact: then only one does, since what different terms send into one layer
// output must not be added up where it does not cancel on average.
class LabelGradients {
 public:
  // outputs [n, ..., C], not differentiated, of the samples from `first` on; the draws of one
  // object are made when it is, for each sample from a stream of its own.
  LabelGradients(const Loss& loss, const torch::Tensor& outputs, const torch::Tensor& targets,
                 const KfacOptions& options, int64_t first);

  int64_t num_passes() const { return columns_.size(0) * terms_; }
  torch::Tensor of_pass(int64_t pass) const;

 private:
  torch::Tensor columns_;  // [passes of a term, n, ..., C]
  int64_t terms_ = 1;      // of a sample, one at a time
};

}  // namespace curvq
