#include "curvq/nn/decoder.h"

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/kernels/gemm.h"
#include "nn/in_place.h"
#include "nn/rms_norm.h"

namespace curvq {
namespace {

// Inverse frequencies [head_dim / 2], computed in Float; float32 is what everybody takes for
// float32 models.
template <typename Float>
torch::Tensor rope_frequencies(const DecoderConfig& config) {
  const RopeConfig& rope = config.rope;
  std::vector<Float> frequencies(config.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const Float exponent = static_cast<Float>(2 * i) / static_cast<Float>(config.head_dim);
    Float f = 1 / std::pow(static_cast<Float>(rope.theta), exponent);
    if (rope.scaling == RopeConfig::Scaling::kLinear) {
      f /= static_cast<Float>(rope.factor);
    } else if (rope.scaling == RopeConfig::Scaling::kLlama3) {
      const double context = static_cast<double>(rope.original_max_positions);
      const double wavelength = 2.0 * M_PI / f;
      const double smooth = (context / wavelength - rope.low_frequency_factor) /
                            (rope.high_frequency_factor - rope.low_frequency_factor);
      if (wavelength > context / rope.low_frequency_factor) {
        f = static_cast<Float>(f / rope.factor);
      } else if (wavelength >= context / rope.high_frequency_factor) {
        f = static_cast<Float>((1.0 - smooth) * f / rope.factor + smooth * f);
      }
    }
    frequencies[i] = f;
  }
  return torch::tensor(frequencies, torch::CppTypeToScalarType<Float>::value);
}

// Cosines and sines [length, head_dim] of positions begin, begin + 1, ...
std::pair<torch::Tensor, torch::Tensor> rope_table(const DecoderConfig& config, int64_t begin,
                                                   int64_t length, torch::ScalarType dtype) {
  const torch::Tensor positions = torch::arange(begin, begin + length, dtype);
  const torch::Tensor frequencies =
      dtype == torch::kFloat64 ? rope_frequencies<double>(config) : rope_frequencies<float>(config);
  const torch::Tensor half = torch::outer(positions, frequencies);
  const torch::Tensor angles = torch::cat({half, half}, -1);
  return {angles.cos(), angles.sin()};
}

// x [n, heads, t, head_dim]: x cos + rotate_half(x) sin, rotate_half(a, b) = (-b, a).
torch::Tensor apply_rope(const torch::Tensor& x, const torch::Tensor& cos,
                         const torch::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
}

// Queries or keys y [n, t, heads * head_dim] with their positions, as [n, heads, t, head_dim].
// Without gradients, float32 values are turned where they are.
torch::Tensor rotated_heads(torch::Tensor y, int64_t head_dim, const torch::Tensor& cos,
                            const torch::Tensor& sin) {
  const bool in_place = !at::GradMode::is_enabled() && y.scalar_type() == torch::kFloat32 &&
                        y.stride(-1) == 1 && y.stride(0) == y.size(1) * y.stride(1);
  if (in_place) {
    const int64_t t = y.size(1), heads = y.size(2) / head_dim;
    const float* c = cos.data_ptr<float>();
    const float* s = sin.data_ptr<float>();
    float* values = y.data_ptr<float>();
    const int64_t stride = y.stride(1);
    parallel_for(0, y.size(0) * t, [&](int64_t i) {
      internal::rotate_heads(values + i * stride, heads, head_dim, c + i % t * head_dim,
                             s + i % t * head_dim);
    });
  }
  y = y.unflatten(-1, {-1, head_dim}).transpose(1, 2);
  return in_place ? y : apply_rope(y, cos, sin);
}

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

// Outputs of layers that read the same x. Many rows of x go through one product with the stacked
// weights, which reads x once.
std::vector<torch::Tensor> forward_together(const std::vector<const Linear*>& linears,
                                            const torch::Tensor& x) {
  constexpr int64_t kWorthStacking = 64;
  std::vector<torch::Tensor> outputs, weights;
  for (const Linear* linear : linears) {
    if (linear->is_dense() && !linear->bias.defined() && !linear->product.defined())
      weights.push_back(linear->weight);
  }
  if (weights.size() < linears.size() || x.numel() / x.size(-1) < kWorthStacking) {
    for (const Linear* linear : linears) outputs.push_back(linear->forward(x));
    return outputs;
  }
  const torch::Tensor all = torch::linear(x, torch::cat(weights, 0));
  int64_t begin = 0;
  for (const torch::Tensor& weight : weights) {
    outputs.push_back(all.narrow(-1, begin, weight.size(0)));
    begin += weight.size(0);
  }
  return outputs;
}

// The product x W^T, known from before.
struct KnownProduct : torch::autograd::Function<KnownProduct> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor&,
                               const torch::Tensor& weight, const torch::Tensor& product) {
    context->save_for_backward({weight});
    return product.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].matmul(context->get_saved_variables()[0]), torch::Tensor(),
            torch::Tensor()};
  }
};

void append_to_cache(torch::Tensor& store, const torch::Tensor& values, int64_t begin) {
  store.narrow(1, begin, values.size(1)).copy_(values);
}

}  // namespace

torch::Tensor Linear::forward(const torch::Tensor& x) const {
  if (product.defined()) {
    const torch::Tensor y = KnownProduct::apply(x, weight, product);
    return bias.defined() ? y + bias : y;
  }
  if (is_dense()) return bias.defined() ? torch::linear(x, weight, bias) : torch::linear(x, weight);
  const torch::Tensor input = x.contiguous();
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  const int64_t in = shape.back(), rows = input.numel() / in;
  const int64_t out_features = prepacked ? prepacked->rows() : packed->rows();
  shape.back() = out_features;
  torch::Tensor out = torch::empty(shape, torch::kFloat32);
  float* values = out.data_ptr<float>();
  if (prepacked) {
    LinearEnds ends;
    if (bias.defined()) ends.bias = bias.data_ptr<float>();
    linear(*prepacked, LinearInput(*prepacked, input.data_ptr<float>(), rows, in), values,
           out_features, ends);
    return out;
  }
  packed_gemm(*packed, input.data_ptr<float>(), rows, in, values, out_features, activations);
  if (bias.defined()) out += bias;
  return out;
}

torch::Tensor DecoderBlock::qkv_input(const torch::Tensor& x) const {
  return rms_norm(x, attention_norm, config.norm_epsilon);
}

torch::Tensor DecoderBlock::o_input(const torch::Tensor& normed, KeyValueCache* cache) const {
  const int64_t n = normed.size(0), t = normed.size(1), begin = cache ? cache->length : 0;
  const std::vector<torch::Tensor> qkv = forward_together({&q, &k, &v}, normed);
  const auto [cos, sin] = rope_table(config, begin, t, normed.scalar_type());
  const torch::Tensor queries = rotated_heads(qkv[0], config.head_dim, cos, sin);
  torch::Tensor keys = rotated_heads(qkv[1], config.head_dim, cos, sin);
  torch::Tensor values = qkv[2].unflatten(-1, {-1, config.head_dim}).transpose(1, 2);
  torch::optional<torch::Tensor> mask;
  if (cache != nullptr) {
    append_to_cache(cache->keys, keys[0], begin);
    append_to_cache(cache->values, values[0], begin);
    cache->length += t;
    keys = cache->keys.narrow(1, 0, cache->length).unsqueeze(0);
    values = cache->values.narrow(1, 0, cache->length).unsqueeze(0);
    if (begin > 0) mask = torch::ones({t, begin + t}, torch::kBool).tril(begin);
  }
  const int64_t repeats = config.num_heads / config.num_kv_heads;
  if (repeats > 1) {
    keys = keys.repeat_interleave(repeats, 1);
    values = values.repeat_interleave(repeats, 1);
  }
  const torch::Tensor out = at::scaled_dot_product_attention(queries, keys, values, mask, 0.0,
                                                             /*is_causal=*/!mask.has_value());
  return out.transpose(1, 2).reshape({n, t, config.num_heads * config.head_dim});
}

torch::Tensor DecoderBlock::gate_up_input(const torch::Tensor& x) const {
  return rms_norm(x, mlp_norm, config.norm_epsilon);
}

torch::Tensor DecoderBlock::down_input(const torch::Tensor& normed) const {
  const std::vector<torch::Tensor> gate_up = forward_together({&gate, &up}, normed);
  torch::Tensor gated = activate(gate_up[0], config.activation);
  return at::GradMode::is_enabled() ? gated * gate_up[1] : gated.mul_(gate_up[1]);
}

torch::Tensor DecoderBlock::forward(const torch::Tensor& x, KeyValueCache* cache) const {
  const torch::Tensor attended = x + o.forward(o_input(qkv_input(x), cache));
  return attended + down.forward(down_input(gate_up_input(attended)));
}

std::vector<std::vector<Linear*>> DecoderBlock::linears() {
  return {{&q, &k, &v}, {&o}, {&gate, &up}, {&down}};
}

DecoderSession::DecoderSession(std::shared_ptr<const DecoderModel> model)
    : model_(std::move(model)) {
  const DecoderConfig& config = model_->config();
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
  torch::Tensor x = model_->embed(tokens);
  for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i].forward(x, &caches_[i]);
  length_ += count;
  return model_->logits(x[0][count - 1]);
}

}  // namespace curvq
