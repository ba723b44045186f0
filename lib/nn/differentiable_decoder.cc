#include "curvq/nn/differentiable_decoder.h"

#include <torch/torch.h>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/nn/checkpointed.h"
#include "curvq/nn/math_attention.h"
#include "curvq/nn/torch_tensor.h"
#include "nn/model_ends.h"

namespace curvq {
namespace {

// The tensors of a block with their names, in the order in which a model lists its parameters.
std::vector<std::pair<std::string, torch::Tensor*>> tensors_of(DecoderBlock& block) {
  std::vector<std::pair<std::string, torch::Tensor*>> tensors;
  const auto add = [&](const std::string& name, torch::Tensor& weight, torch::Tensor& bias) {
    if (weight.defined()) tensors.emplace_back(name + ".weight", &weight);
    if (bias.defined()) tensors.emplace_back(name + ".bias", &bias);
  };
  const auto add_norm = [&](Norm& norm) { add(norm.name, norm.weight, norm.bias); };
  const auto add_linear = [&](Linear& linear) {
    add(linear.info.name, linear.weight, linear.bias);
  };
  add_norm(block.attention_norm);
  const DecoderConfig& config = block.config;
  if (block.sinks.defined())
    tensors.emplace_back(config.names.block(block.layer) + config.names.sinks, &block.sinks);
  for (Linear& linear : block.qkv) add_linear(linear);
  add_norm(block.q_norm);
  add_norm(block.k_norm);
  add_linear(block.o);
  add_norm(block.post_attention_norm);
  add_norm(block.mlp_norm);
  add(config.names.block(block.layer) + config.names.router, block.router, block.router_bias);
  for (DecoderBlock::Mlp& mlp : block.mlps) {
    for (Linear& linear : mlp.gate_up) add_linear(linear);
    add_linear(mlp.down);
  }
  add_norm(block.post_mlp_norm);
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
  config_.require_head("the loss of all parameters");
  // `values` are those of `name` in float32, where the checkpoint does not hold them plainly.
  const auto leaf = [&](const std::string& name, const torch::Tensor& values) {
    const TensorView* stored = model.checkpoint().find(name);
    const bool plain = stored != nullptr && is_floating_point(stored->dtype);
    const torch::Tensor exact = plain ? to_torch(*stored) : values;
    parameters_.emplace_back(name, exact.to(dtype).contiguous().requires_grad_());
    const torch::Tensor parameter = parameters_.back().second;
    const bool is_linear = values.defined() && values.dim() == 2;
    return plain && is_linear && config_.transposed_weights ? parameter.t() : parameter;
  };
  const DecoderNames& names = config_.names;
  embedding_ = leaf(names.embedding + ".weight", {});
  if (!names.positions.empty()) positions_ = leaf(names.positions + ".weight", {});
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    blocks_.push_back(model.load_block(layer));
    for (const auto& [name, tensor] : tensors_of(blocks_.back())) *tensor = leaf(name, *tensor);
    model.release_block(layer);
  }
  final_norm_ = model.final_norm();
  final_norm_.weight = leaf(final_norm_.name + ".weight", {});
  if (final_norm_.bias.defined()) final_norm_.bias = leaf(final_norm_.name + ".bias", {});
  head_ = config_.tied_embeddings ? embedding_ : leaf(names.head + ".weight", {});
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
  torch::Tensor x = stream_of(torch::embedding(embedding_, ids), positions_, 0, config_);
  for (const DecoderBlock& block : blocks_) x = forward_block(block, x);
  return logits_of(torch::linear(final_norm_.forward(x), head_), config_);
}

}  // namespace curvq
