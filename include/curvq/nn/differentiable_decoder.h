// A decoder whose logits can be differentiated twice with respect to all of its parameters.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "curvq/nn/decoder.h"

namespace curvq {

// All weights in memory as leaves that require gradients; quantized layers are dequantized. Uses
// the blocks of DecoderModel. forward() may be called from one thread at a time.
class DifferentiableDecoder {
 public:
  // dtype: float32 or float64. Stored float64 weights are taken exactly.
  // checkpoint: keep only each block's input and compute the block again when differentiating; see
  // checkpointed().
  DifferentiableDecoder(const DecoderModel& model, torch::ScalarType dtype,
                        bool checkpoint = false);

  const DecoderConfig& config() const { return config_; }
  // By the names of the checkpoint: embedding, blocks in order, final norm, head (unless tied to
  // the embedding, which then counts once).
  const std::vector<std::pair<std::string, torch::Tensor>>& parameters() const {
    return parameters_;
  }

  // ids [n, t] int64 -> logits [n, t, vocab]. Attention by matrix products and softmax, not fused.
  // Throws UsageError for ids outside of the vocabulary or more positions than the model has.
  torch::Tensor forward(const torch::Tensor& ids) const;

 private:
  torch::Tensor forward_block(const DecoderBlock& block, const torch::Tensor& x) const;

  DecoderConfig config_;
  bool checkpoint_;
  std::vector<DecoderBlock> blocks_;
  torch::Tensor embedding_, positions_, head_;
  Norm final_norm_;
  std::vector<std::pair<std::string, torch::Tensor>> parameters_;
};

}  // namespace curvq
