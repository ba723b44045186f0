#include "curvq/nn/decoder.h"

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "nn/forward_together.h"
#include "nn/packed_layers.h"

namespace curvq {
namespace {

// Without gradients x may be overwritten.
torch::Tensor activate(torch::Tensor x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::GradMode::is_enabled() ? torch::silu(x) : at::silu_(x);
    case Activation::kGelu:
      return torch::gelu(x);
    case Activation::kGeluTanh:
      return torch::gelu(x, "tanh");
    case Activation::kRelu:
      return torch::relu(x);
  }
  throw std::logic_error("activation");
}

torch::Tensor clamped_swiglu(const torch::Tensor& gate, const torch::Tensor& up,
                             const DecoderConfig& config) {
  const double limit = config.swiglu_limit;
  const torch::Tensor g = gate.clamp_max(limit);
  return g * torch::sigmoid(config.swiglu_alpha * g) * (up.clamp(-limit, limit) + 1);
}

torch::Tensor scaled(const torch::Tensor& x, double scale) { return scale == 1 ? x : x * scale; }

// x + scale norm(linear(input)), or norm(x + linear(input)).
torch::Tensor added(const torch::Tensor& x, const Linear& linear, const torch::Tensor& input,
                    const Norm& norm, const DecoderConfig& config) {
  if (config.norm_of_sum) return norm.forward(internal::forward_onto(linear, input, x));
  const double scale = config.residual_scale;
  if (!norm.weight.defined() && scale == 1) return internal::forward_onto(linear, input, x);
  return x + scaled(norm.forward(linear.forward(input)), scale);
}

}  // namespace

torch::Tensor DecoderBlock::activated(const std::vector<Linear>& gate_up,
                                      const torch::Tensor& normed) const {
  if (config.gated && config.activation == Activation::kSilu && config.swiglu_limit == 0 &&
      gate_up.size() == 2 && internal::all_prepacked(gate_up)) {
    const torch::Tensor gated = internal::swiglu_prepacked(gate_up[0], gate_up[1], normed);
    if (gated.defined()) return gated;
  }
  std::vector<torch::Tensor> outputs = forward_together(gate_up, normed);
  if (config.gated && outputs.size() == 1) outputs = outputs[0].chunk(2, -1);
  if (config.swiglu_limit > 0) return clamped_swiglu(outputs[0], outputs[1], config);
  torch::Tensor out = activate(outputs[0], config.activation);
  if (!config.gated) return out;
  return at::GradMode::is_enabled() ? out * outputs[1] : out.mul_(outputs[1]);
}

void DecoderBlock::add_attention(BlockState& s) const {
  s.x = added(s.x, o, s.input, post_attention_norm, config);
}

void DecoderBlock::advance(size_t group, BlockState& s, KeyValueCache* cache) const {
  if (group == 0) {
    s.input = attention_norm.forward(s.x);
  } else if (group == 1) {
    s.input = attention_heads(s.input, cache);
  } else if (router.defined()) {
    if (group == 2) add_attention(s);
    advance_experts(group, s);
  } else if (group == 2) {
    const torch::Tensor before = s.x;
    add_attention(s);
    s.input = mlp_norm.forward(config.parallel_residual ? before : s.x);
  } else if (group == 3) {
    s.input = activated(mlps[0].gate_up, s.input);
  } else {
    s.x = added(s.x, mlps[0].down, s.input, post_mlp_norm, config);
    s.input = torch::Tensor();
  }
}

torch::Tensor DecoderBlock::forward(const torch::Tensor& x, KeyValueCache* cache) const {
  BlockState state;
  state.x = x;
  const size_t last = router.defined() ? 1 : num_groups();
  for (size_t group = 0; group <= last; ++group) advance(group, state, cache);
  if (router.defined()) {
    add_attention(state);
    run_experts(state);
  }
  return state.x;
}

std::vector<std::vector<Linear*>> DecoderBlock::linears() {
  const auto pointers = [](std::vector<Linear>& linears) {
    std::vector<Linear*> out;
    for (Linear& linear : linears) out.push_back(&linear);
    return out;
  };
  std::vector<std::vector<Linear*>> groups = {pointers(qkv), {&o}};
  for (Mlp& mlp : mlps) {
    groups.push_back(pointers(mlp.gate_up));
    groups.push_back({&mlp.down});
  }
  return groups;
}

DecoderSession::DecoderSession(std::shared_ptr<const DecoderModel> model)
    : model_(std::move(model)) {
  const DecoderConfig& config = model_->config();
  config.require_head("generating text");
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    blocks_.push_back(model_->load_block(layer));
  caches_.resize(blocks_.size());
}

torch::Tensor DecoderSession::append(const std::vector<int32_t>& ids) {
  torch::NoGradGuard no_grad;
  const DecoderConfig& config = model_->config();
  const int64_t count = static_cast<int64_t>(ids.size());
  if (count == 0) throw UsageError("no token to start from; give a prompt");
  if (length_ + count > config.max_positions) {
    throw UsageError(format(
        "%lld tokens exceed the model's %lld positions; ask for fewer tokens or shorten the prompt",
        static_cast<long long>(length_ + count), static_cast<long long>(config.max_positions)));
  }
  torch::Tensor tokens = torch::empty({1, count}, torch::kInt64);
  for (int64_t i = 0; i < count; ++i) tokens[0][i] = ids[i];
  for (KeyValueCache& cache : caches_) {
    const int64_t capacity = cache.keys.defined() ? cache.keys.size(1) : 0;
    if (length_ + count <= capacity) continue;
    const int64_t wanted =
        std::min(config.max_positions, std::max(2 * capacity, length_ + count + 64));
    const torch::Tensor keys = torch::empty({config.num_kv_heads, wanted, config.head_dim});
    const torch::Tensor values = torch::empty_like(keys);
    if (length_ > 0) {
      keys.narrow(1, 0, length_).copy_(cache.keys.narrow(1, 0, length_));
      values.narrow(1, 0, length_).copy_(cache.values.narrow(1, 0, length_));
    }
    cache.keys = keys;
    cache.values = values;
  }
  torch::Tensor x = model_->embed(tokens, length_);
  for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i].forward(x, &caches_[i]);
  length_ += count;
  return model_->logits(x[0][count - 1]);
}

}  // namespace curvq
