// K-FAC factors of every linear and convolutional layer of a model, from data.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "curvq/curvature/kronecker.h"
#include "curvq/curvature/problem.h"
#include "curvq/nn/decoder.h"

namespace curvq {

// Whose labels the output gradients are of.
enum class KfacLabels {
  kSampled,  // drawn from the model's own distribution: the Fisher matrix, on average
  kExact,    // all of them, by a root of the loss's Hessian in the outputs: the Fisher (and
             // Gauss-Newton) matrix with no error from draws, for a backward pass an output and
             // loss term of a sample; small outputs only
  kData,     // the data's own: the empirical Fisher
};

struct KfacOptions {
  KfacLabels labels = KfacLabels::kSampled;
  int64_t draws = 1;  // kSampled: labels for each loss term, 1 or more; a backward pass each
  uint64_t seed = 0;  // of the draws
  // Where the samples begin in all data, of which they may be a part: each sample's labels are
  // drawn for its place there, however the data are divided.
  int64_t first_sample = 0;
  // kReduce needs samples of one loss term each.
  WeightSharing sharing = WeightSharing::kExpand;

  void validate() const;  // throws UsageError naming field, value and bound
};

// One layer's factors, of the mean over loss terms: its block is approximated by G (x) A.
struct LayerFactors {
  std::string name;          // of the module: "fc1", "model.layers.0.mlp.up_proj"
  bool has_bias = false;     // A's last row and column
  KroneckerFactors factors;  // A [in(+1)]^2 mean a a^T, G [out]^2, both symmetric
  int64_t num_inputs = 0;    // a's that A is the mean of: samples times positions
};

// Layers whose weight is one of the problem's chosen parameters and enters the model through a
// linear layer or an ungrouped 1-D or 2-D convolution, found by watching what forward()
// calls; in the order of their first use. A bias counts if it is chosen too. A layer that is used
// several times has the uses as further positions. Goes through the chunks of the problem; the
// same labels for a seed.
// Throws UnsupportedError if there is no such layer, for kSampled with a loss that is no likelihood
// and kExact without a known root; UsageError for kExact with more than kMostExactPasses backward
// passes and for kReduce with several terms a sample; NumericalError naming the layer whose inputs
// or output gradients are not finite.
std::vector<LayerFactors> kfac_factors(const Problem& problem, const KfacOptions& options);

inline constexpr int64_t kMostExactPasses = 4096;

// The linear layers of a decoder, block by block from the last, with the cross entropy of
// next tokens: in memory are each block's input for all tokens, a gradient for all tokens a draw,
// and one block's weights and factors. The output head is a layer where it is no embedding too and
// has at most kMostHeadOutputs outputs (its G is a vocabulary-sized square). Layers for which
// `wanted(name)` is false are left out. `sink` gets each layer when it is done. A layer's A comes
// from all tokens, also those whose target is none. Works in the dtype of the model.
//   tokens  inputs ids [n, t] int64, targets [n, t] int64, negative: no loss term
// Throws as above.
using LayerFactorsSink = std::function<void(LayerFactors)>;
void kfac_factors(const DecoderModel& model, const Batch& tokens, const KfacOptions& options,
                  const std::function<bool(const std::string&)>& wanted,
                  const LayerFactorsSink& sink);

// Throws what the function above throws for options and data that do not fit, before any work.
void check_kfac(const DecoderModel& model, const Batch& tokens, const KfacOptions& options);

inline constexpr int64_t kMostHeadOutputs = 4096;
// Tokens (of whole windows, at least one) whose graph through a block is in memory at once: enough
// for large matrix products.
inline constexpr int64_t kKfacChunkTokens = 2048;

// The layers that the function above gives without `wanted`, in the model's order.
std::vector<LinearInfo> kfac_layers(const DecoderConfig& config);

}  // namespace curvq
