#include <map>

#include "curvq/nn/decoder_config.h"

namespace curvq {

std::vector<std::vector<LinearInfo>> block_linears(const DecoderConfig& c, int64_t layer) {
  std::string prefix = c.names.block(layer);
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  // One layer for each of the sizes, or one for all of them.
  const auto group = [&](const std::vector<std::string>& names, const std::vector<int64_t>& sizes,
                         bool bias) {
    std::vector<LinearInfo> linears;
    for (const std::string& name : names)
      linears.push_back({prefix + name, c.hidden_size, sizes[linears.size()], bias});
    for (size_t i = names.size(); i < sizes.size(); ++i) linears.back().out_features += sizes[i];
    return linears;
  };
  const std::vector<int64_t> wide(c.gated ? 2 : 1, c.intermediate_size);
  std::vector<std::vector<LinearInfo>> groups = {
      group(c.names.qkv, {q, kv, kv}, c.qkv_bias),
      {{prefix + c.names.o, q, c.hidden_size, c.o_bias}}};
  for (int64_t expert = 0; expert < c.num_mlps(); ++expert) {
    prefix = c.names.mlp(layer, expert);
    groups.push_back(group(c.names.gate_up, wide, c.mlp_bias));
    groups.push_back({{prefix + c.names.down, c.intermediate_size, c.hidden_size, c.mlp_bias}});
  }
  return groups;
}

std::vector<TensorInfo> norm_tensors(const DecoderConfig& c, const std::string& name,
                                     int64_t size) {
  std::vector<TensorInfo> out;
  if (name.empty()) return out;
  out.push_back({name + ".weight", DType::kF32, {size}});
  if (c.norm == NormKind::kLayer) out.push_back({name + ".bias", DType::kF32, {size}});
  return out;
}

std::vector<TensorInfo> expected_tensors(const DecoderConfig& c) {
  std::vector<TensorInfo> out;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    out.push_back({name, DType::kF32, std::move(shape)});
  };
  const auto add_norm = [&](const std::string& prefix, const std::string& name, int64_t size) {
    for (TensorInfo& info : norm_tensors(c, name.empty() ? name : prefix + name, size))
      out.push_back(std::move(info));
  };
  add(c.names.embedding + ".weight", {c.vocab_size, c.hidden_size});
  if (!c.names.positions.empty())
    add(c.names.positions + ".weight", {c.max_positions + c.position_offset, c.hidden_size});
  if (!c.names.token_types.empty())
    add(c.names.token_types + ".weight", {c.num_token_types, c.hidden_size});
  add_norm("", c.names.embedding_norm, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = c.names.block(layer);
    for (const std::string& name : {c.names.attention_norm, c.names.post_attention_norm,
                                    c.names.mlp_norm, c.names.post_mlp_norm})
      add_norm(prefix, name, c.hidden_size);
    add_norm(prefix, c.names.q_norm, c.head_dim * (c.whole_qk_norm ? c.num_heads : 1));
    add_norm(prefix, c.names.k_norm, c.head_dim * (c.whole_qk_norm ? c.num_kv_heads : 1));
    if (!c.names.sinks.empty()) add(prefix + c.names.sinks, {c.num_heads});
    if (c.num_experts > 0) add(prefix + c.names.router + ".weight", {c.num_experts, c.hidden_size});
    if (c.router_bias) add(prefix + c.names.router + ".bias", {c.num_experts});
    for (const auto& group : block_linears(c, layer)) {
      for (const LinearInfo& linear : group) {
        std::vector<int64_t> shape = {linear.out_features, linear.in_features};
        if (c.transposed_weights) std::swap(shape[0], shape[1]);
        add(linear.name + ".weight", shape);
        if (linear.has_bias) add(linear.name + ".bias", {linear.out_features});
      }
    }
  }
  add_norm("", c.names.final_norm, c.hidden_size);
  if (!c.tied_embeddings && !c.bidirectional)
    add(c.names.head + ".weight", {c.vocab_size, c.hidden_size});
  return out;
}

std::string fused_group_key(const std::string& linear_name) {
  static const std::map<std::string, std::string> kFused = {
      {"q_proj", "qkv"},        {"k_proj", "qkv"},      {"v_proj", "qkv"},
      {"query", "qkv"},         {"key", "qkv"},         {"value", "qkv"},
      {"gate_proj", "gate_up"}, {"up_proj", "gate_up"}, {"w1", "w1_w3"},
      {"w3", "w1_w3"},          {"q_a_proj", "qkv_a"},  {"kv_a_proj_with_mqa", "qkv_a"}};
  const size_t dot = linear_name.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : linear_name.substr(0, dot + 1);
  const auto it = kFused.find(linear_name.substr(parent.size()));
  return it == kFused.end() ? linear_name : parent + it->second;
}

}  // namespace curvq
