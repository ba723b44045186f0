// The calibration tokens on their way through a model, one block at a time.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "curvq/kernels/gemm.h"
#include "curvq/nn/decoder.h"

namespace curvq::internal {

// Tokens that go through a block at once: enough for large matrix products, little memory.
inline constexpr int64_t kChunkTokens = 2048;

// Linear layers come in groups that read the same input; after a group's input has been computed,
// the group's layers may be replaced before advance() uses them.
class BlockActivations {
 public:
  // residual [n, t, hidden]: the embedded tokens.
  BlockActivations(torch::Tensor residual, Activations activations);

  // Moves on to the input of `group`, in the order of block_linears().
  void advance(const DecoderBlock& block, size_t group);
  // Adds what is left of the block to the residual stream.
  void finish(const DecoderBlock& block);

  const torch::Tensor& residual() const { return residual_; }
  const torch::Tensor& input() const { return input_; }  // [n, t, features] of the group's layers
  // Tokens of windows [first, first + count) that come to the layers, counted over these windows;
  // undefined: all do. The others' inputs are zeros.
  torch::Tensor tokens(int64_t first, int64_t count) const;
  int64_t num_tokens() const;

  // 2/N sum u x x^T of the N inputs of windows [first, first + count), [in, in], u [N] token
  // weights (undefined: 1). Throws NumericalError naming `layer` and the first sample whose inputs
  // are not finite.
  std::vector<float> hessian(int64_t first, int64_t count, const torch::Tensor& weights,
                             const std::string& layer) const;

  // The largest magnitude of the inputs. Throws as hessian().
  float input_amax(const std::string& layer) const;

 private:
  // DecoderBlock::advance() for `count` windows; updates their residual stream.
  BlockState step(const DecoderBlock& block, size_t group, int64_t first, int64_t count);
  [[noreturn]] void throw_not_finite(const std::string& layer) const;

  torch::Tensor residual_, input_, sum_, shares_, tokens_;
  std::map<int64_t, torch::Tensor> buffers_;  // by width; input_ is one of them
  Activations activations_;
  int64_t chunk_;  // windows
};

}  // namespace curvq::internal
