#include "curvq/nn/differentiable_decoder.h"

#include <torch/torch.h>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/nn/checkpointed.h"
#include "curvq/nn/math_attention.h"
#include "curvq/nn/torch_tensor.h"
#include "nn/rms_norm.h"

namespace curvq {
namespace {

// The tensors of a block with their names behind "model.layers.N.", in the order in which a model
// lists its parameters.
std::vector<std::pair<std::string, torch::Tensor*>> tensors_of(DecoderBlock& block) {
  std::vector<std::pair<std::string, torch::Tensor*>> tensors;
  const auto add_linear = [&](const std::string& name, Linear& linear) {
    tensors.emplace_back(name + ".weight", &linear.weight);
    if (linear.bias.defined()) tensors.emplace_back(name + ".bias", &linear.bias);
  };
  tensors.emplace_back("input_layernorm.weight", &block.attention_norm);
  add_linear("self_attn.q_proj", block.q);
  add_linear("self_attn.k_proj", block.k);
  add_linear("self_attn.v_proj", block.v);
  add_linear("self_attn.o_proj", block.o);
  tensors.emplace_back("post_attention_layernorm.weight", &block.mlp_norm);
  add_linear("mlp.gate_proj", block.gate);
  add_linear("mlp.up_proj", block.up);
  add_linear("mlp.down_proj", block.down);
  return tensors;
}

void check_ids(const torch::Tensor& ids, const DecoderConfig& config) {
  if (ids.dim() != 2 || ids.scalar_type() != torch::kInt64 || ids.numel() == 0)
    throw UsageError("token ids must be int64 [n, t] with at least one token");
  if (ids.size(1) > config.max_positions) {
    throw UsageError(format("windows of %lld tokens exceed the model's %lld positions",
                            static_cast<long long>(ids.size(1)),
                            static_cast<long long>(config.max_positions)));
  }
  const int64_t low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
  if (low >= 0 && high < config.vocab_size) return;
  throw UsageError(format("token id %lld is outside the model's vocabulary of %lld",
                          static_cast<long long>(low < 0 ? low : high),
                          static_cast<long long>(config.vocab_size)));
}

}  // namespace

DifferentiableDecoder::DifferentiableDecoder(const DecoderModel& model, torch::ScalarType dtype,
                                             bool checkpoint)
    : config_(model.config()), checkpoint_(checkpoint) {
  // `values` are those of `name` in float32, where the checkpoint does not hold them plainly.
  const auto leaf = [&](const std::string& name, const torch::Tensor& values) {
    const TensorView* stored = model.checkpoint().find(name);
    const bool plain = stored != nullptr && is_floating_point(stored->dtype);
    const torch::Tensor exact = plain ? to_torch(*stored) : values;
    parameters_.emplace_back(name, exact.to(dtype).contiguous().requires_grad_());
    return parameters_.back().second;
  };
  embedding_ = leaf("model.embed_tokens.weight", {});
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    blocks_.push_back(model.load_block(layer));
    for (const auto& [name, tensor] : tensors_of(blocks_.back()))
      *tensor = leaf("model.layers." + std::to_string(layer) + "." + name, *tensor);
    model.release_block(layer);
  }
  final_norm_ = leaf("model.norm.weight", {});
  head_ = config_.tied_embeddings ? embedding_ : leaf("lm_head.weight", {});
}

torch::Tensor DifferentiableDecoder::forward_block(const DecoderBlock& block,
                                                   const torch::Tensor& x) const {
  if (!checkpoint_) return block.forward(x);
  std::vector<torch::Tensor> inputs = {x};
  DecoderBlock copy = block;
  for (const auto& [name, tensor] : tensors_of(copy)) inputs.push_back(*tensor);
  const auto run = [copy](const std::vector<torch::Tensor>& values) {
    DecoderBlock fresh = copy;
    size_t next = 1;
    for (const auto& [name, tensor] : tensors_of(fresh)) *tensor = values[next++];
    const MathAttention math;
    return fresh.forward(values[0]);
  };
  return checkpointed(run, inputs);
}

torch::Tensor DifferentiableDecoder::forward(const torch::Tensor& ids) const {
  check_ids(ids, config_);
  const MathAttention math;
  torch::Tensor x = torch::embedding(embedding_, ids);
  for (const DecoderBlock& block : blocks_) x = forward_block(block, x);
  return torch::linear(rms_norm(x, final_norm_, config_.norm_epsilon), head_);
}

}  // namespace curvq
