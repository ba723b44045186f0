#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "curvq/core/parallel.h"
#include "curvq/nn/decoder.h"
#include "nn/forward_together.h"
#include "nn/in_place.h"
#include "nn/tiled_attention.h"

namespace curvq {
namespace {

// Element at which frequencies turn `turns` times within the original positions.
double yarn_element(const RopeConfig& rope, int64_t dim, double turns) {
  const auto context = static_cast<double>(rope.original_max_positions);
  return static_cast<double>(dim) * std::log(context / (turns * 2 * M_PI)) /
         (2 * std::log(rope.theta));
}

// How far each of the dim / 2 frequencies is divided: 0 not at all, 1 by the factor.
std::vector<double> yarn_ramp(const RopeConfig& rope, int64_t dim) {
  double low = yarn_element(rope, dim, rope.beta_fast);
  double high = yarn_element(rope, dim, rope.beta_slow);
  if (rope.whole_ramp) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (high <= low) high = low + 0.001;
  std::vector<double> ramp;
  for (int64_t i = 0; i < dim / 2; ++i)
    ramp.push_back(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return ramp;
}

// Inverse frequencies [dim / 2], computed in Float; float32 is what everybody takes for
// float32 models.
template <typename Float>
torch::Tensor rope_frequencies(const RopeConfig& rope, int64_t dim) {
  std::vector<Float> frequencies(dim / 2);
  std::vector<double> ramp;
  if (rope.scaling == RopeConfig::Scaling::kYarn) ramp = yarn_ramp(rope, dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const Float exponent = static_cast<Float>(2 * i) / static_cast<Float>(dim);
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
    } else if (rope.scaling == RopeConfig::Scaling::kYarn) {
      f = static_cast<Float>(f / rope.factor * ramp[i] + f * (1 - ramp[i]));
    }
    frequencies[i] = f;
  }
  return torch::tensor(frequencies, torch::CppTypeToScalarType<Float>::value);
}

// Cosines and sines [length, dim] of positions begin, begin + 1, ...
std::pair<torch::Tensor, torch::Tensor> rope_table(const RopeConfig& rope, int64_t dim,
                                                   int64_t begin, int64_t length,
                                                   torch::ScalarType dtype) {
  const torch::Tensor positions = torch::arange(begin, begin + length, dtype);
  const torch::Tensor frequencies = dtype == torch::kFloat64 ? rope_frequencies<double>(rope, dim)
                                                             : rope_frequencies<float>(rope, dim);
  const torch::Tensor half = torch::outer(positions, frequencies);
  const torch::Tensor angles = torch::cat({half, half}, -1);
  const double scale = rope.attention_factor;
  if (scale == 1) return {angles.cos(), angles.sin()};
  return {angles.cos() * scale, angles.sin() * scale};
}

// x [n, heads, t, head_dim]: the first elements x of each head, as many as there are cosines,
// become x cos + rotate_half(x) sin, rotate_half(a, b) = (-b, a).
torch::Tensor apply_rope(const torch::Tensor& x, const torch::Tensor& cos,
                         const torch::Tensor& sin) {
  const int64_t dim = cos.size(-1), rest = x.size(-1) - dim;
  if (rest > 0) {
    const auto parts = x.split_with_sizes({dim, rest}, -1);
    return torch::cat({apply_rope(parts[0], cos, sin), parts[1]}, -1);
  }
  const auto halves = x.chunk(2, -1);
  return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
}

// Queries or keys y [n, t, heads * head_dim] with their positions (none if `cos` is undefined), as
// [n, heads, t, head_dim]. Without gradients, float32 values are turned where they are.
torch::Tensor rotated_heads(torch::Tensor y, int64_t head_dim, const torch::Tensor& cos,
                            const torch::Tensor& sin) {
  if (!cos.defined()) return y.unflatten(-1, {-1, head_dim}).transpose(1, 2);
  const bool in_place = !at::GradMode::is_enabled() && y.scalar_type() == torch::kFloat32 &&
                        y.stride(-1) == 1 && y.stride(0) == y.size(1) * y.stride(1);
  if (in_place) {
    const int64_t t = y.size(1), heads = y.size(2) / head_dim, dim = cos.size(-1);
    const float* c = cos.data_ptr<float>();
    const float* s = sin.data_ptr<float>();
    float* values = y.data_ptr<float>();
    const int64_t stride = y.stride(1);
    parallel_for(0, y.size(0) * t, [&](int64_t i) {
      internal::rotate_heads(values + i * stride, heads, head_dim, dim, c + i % t * dim,
                             s + i % t * dim);
    });
  }
  y = y.unflatten(-1, {-1, head_dim}).transpose(1, 2);
  return in_place ? y : apply_rope(y, cos, sin);
}

// Queries, keys and values [n, t, heads * head_dim] out of what the layers that make them give.
std::vector<torch::Tensor> split_heads(std::vector<torch::Tensor> outputs,
                                       const DecoderConfig& config) {
  if (outputs.size() > 1) return outputs;
  if (config.qkv_by_head) {
    const torch::Tensor heads = outputs[0].unflatten(-1, {config.num_heads, 3, config.head_dim});
    outputs.clear();
    for (int64_t part = 0; part < 3; ++part) outputs.push_back(heads.select(-2, part).flatten(-2));
    return outputs;
  }
  const int64_t q = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  return outputs[0].split_with_sizes({q, kv, kv}, -1);
}

// Of queries or keys y [n, t, heads * head_dim]: a norm over each head, or over all together.
torch::Tensor normed_heads(const torch::Tensor& y, const Norm& norm, const DecoderConfig& config) {
  if (!norm.weight.defined()) return y;
  if (config.whole_qk_norm) return norm.forward(y.contiguous());
  return norm.forward(y.unflatten(-1, {-1, config.head_dim}).contiguous()).flatten(-2);
}

void append_to_cache(torch::Tensor& store, const torch::Tensor& values, int64_t begin) {
  store.narrow(1, begin, values.size(1)).copy_(values);
}

// softmax(cap(scale q k^T), where `visible`) v. Fused attention has no cap.
torch::Tensor capped_attention(const torch::Tensor& queries, const torch::Tensor& keys,
                               const torch::Tensor& values, const torch::Tensor& visible,
                               double scale, double cap) {
  const torch::Tensor scores = torch::matmul(queries, keys.transpose(-2, -1)) * scale;
  const torch::Tensor capped = torch::tanh(scores / cap) * cap;
  const torch::Tensor hidden = torch::logical_not(visible);
  return torch::matmul(torch::softmax(capped.masked_fill(hidden, -INFINITY), -1), values);
}

// softmax(scale q k^T and the sinks beside it, where `visible`) v, by a key of zeros, whose score a
// mask makes the sink's, and a value of zeros.
torch::Tensor sink_attention(const torch::Tensor& queries, const torch::Tensor& keys,
                             const torch::Tensor& values, const torch::Tensor& visible,
                             const torch::Tensor& sinks, torch::optional<double> scale) {
  const int64_t heads = sinks.size(0), t = visible.size(0), past = visible.size(1);
  const torch::Tensor scores =
      torch::zeros({t, past}, sinks.options()).masked_fill(visible.logical_not(), -INFINITY);
  const torch::Tensor mask = torch::cat(
      {scores.expand({1, heads, t, past}), sinks.view({1, heads, 1, 1}).expand({1, heads, t, 1})},
      -1);
  const auto with_zeros = [](const torch::Tensor& x) {
    return torch::constant_pad_nd(x, {0, 0, 0, 1});
  };
  return at::scaled_dot_product_attention(queries, with_zeros(keys), with_zeros(values), mask, 0.0,
                                          /*is_causal=*/false, scale);
}

}  // namespace

torch::Tensor DecoderBlock::attention_heads(const torch::Tensor& normed,
                                            KeyValueCache* cache) const {
  const int64_t n = normed.size(0), t = normed.size(1), begin = cache ? cache->length : 0;
  const std::vector<torch::Tensor> parts = split_heads(forward_together(qkv, normed), config);
  torch::Tensor cos, sin;
  if (config.rope_dim > 0)
    std::tie(cos, sin) = rope_table(rope, config.rope_dim, begin, t, normed.scalar_type());
  const torch::Tensor queries =
      rotated_heads(normed_heads(parts[0], q_norm, config), config.head_dim, cos, sin);
  torch::Tensor keys =
      rotated_heads(normed_heads(parts[1], k_norm, config), config.head_dim, cos, sin);
  torch::Tensor values = parts[2].unflatten(-1, {-1, config.head_dim}).transpose(1, 2);
  if (cache != nullptr) {
    append_to_cache(cache->keys, keys[0], begin);
    append_to_cache(cache->values, values[0], begin);
    cache->length += t;
    keys = cache->keys.narrow(1, 0, cache->length).unsqueeze(0);
    values = cache->values.narrow(1, 0, cache->length).unsqueeze(0);
  }
  const bool narrow = window > 0 && begin + t > window;
  const bool plain = config.attention_softcap == 0 && !sinks.defined();
  if (!narrow && !config.bidirectional && plain && config.attention_scale == 0 &&
      internal::can_tile_attention(queries))
    return internal::tiled_attention(queries, keys, values);
  const int64_t repeats = config.num_heads / config.num_kv_heads;
  if (repeats > 1) {
    keys = keys.repeat_interleave(repeats, 1);
    values = values.repeat_interleave(repeats, 1);
  }
  torch::optional<torch::Tensor> mask;
  if (begin > 0 || narrow || !plain) {
    mask = torch::ones({t, begin + t}, torch::kBool).tril(begin);
    if (narrow) mask = mask->triu(begin - window + 1);
  }
  torch::optional<double> scale;
  if (config.attention_scale > 0) scale = config.attention_scale;
  torch::Tensor out;
  if (sinks.defined()) {
    out = sink_attention(queries, keys, values, *mask, sinks, scale);
  } else if (config.attention_softcap > 0) {
    out = capped_attention(queries, keys, values, *mask,
                           scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim))),
                           config.attention_softcap);
  } else {
    out = at::scaled_dot_product_attention(queries, keys, values, mask, 0.0,
                                           /*is_causal=*/!mask && !config.bidirectional, scale);
  }
  return out.transpose(1, 2).reshape({n, t, config.num_heads * config.head_dim});
}

}  // namespace curvq
