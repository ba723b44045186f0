#include "nn/families.h"

namespace curvq {
namespace {

Family named(const char* model_type, Family family = {}) {
  family.config.family = model_type;
  return family;
}

Family mistral() {
  Family f = named("mistral");
  f.sliding = SlidingLayers::kAll;
  return f;
}

Family qwen2() {
  Family f = named("qwen2");
  f.config.qkv_bias = true;
  f.sliding = SlidingLayers::kUpper;
  return f;
}

Family qwen3() {
  Family f = named("qwen3");
  f.config.names.q_norm = "self_attn.q_norm";
  f.config.names.k_norm = "self_attn.k_norm";
  f.sliding = SlidingLayers::kUpper;
  return f;
}

Family qwen3_moe() {
  Family f = named("qwen3_moe", qwen3());
  f.config.names.router = "mlp.gate";
  f.config.names.experts = "mlp.experts.";
  f.config.names.gate_up = {"gate_proj", "up_proj"};
  f.config.names.down = "down_proj";
  f.config.normalized_routes = false;
  return f;
}

Family gpt_oss() {
  Family f = named("gpt_oss");
  DecoderNames& n = f.config.names;
  n.sinks = "self_attn.sinks";
  n.router = "mlp.router";
  n.experts = "mlp.experts.";
  n.gate_up = {"gate_proj", "up_proj"};
  n.down = "down_proj";
  f.config.norm_epsilon = 1e-5;
  f.config.qkv_bias = f.config.o_bias = f.config.mlp_bias = f.config.router_bias = true;
  f.config.swiglu_limit = 7;
  f.config.rope.theta = 150000;
  f.sliding = SlidingLayers::kAllButNth;
  f.sliding_pattern = 2;
  return f;
}

Family mixtral() {
  Family f = named("mixtral", mistral());
  f.config.names.router = "block_sparse_moe.gate";
  f.config.names.experts = "block_sparse_moe.experts.";
  f.config.names.gate_up = {"w1", "w3"};
  f.config.names.down = "w2";
  f.config.norm_epsilon = 1e-5;
  return f;
}

Family olmo2() {
  Family f = named("olmo2");
  DecoderNames& n = f.config.names;
  n.attention_norm = n.mlp_norm = "";
  n.post_attention_norm = "post_attention_layernorm";
  n.post_mlp_norm = "post_feedforward_layernorm";
  n.q_norm = "self_attn.q_norm";
  n.k_norm = "self_attn.k_norm";
  f.config.whole_qk_norm = true;
  f.config.norm_epsilon = 1e-5;
  return f;
}

Family phi3() {
  Family f = named("phi3");
  f.config.names.qkv = {"self_attn.qkv_proj"};
  f.config.names.gate_up = {"mlp.gate_up_proj"};
  f.config.norm_epsilon = 1e-5;
  f.sliding = SlidingLayers::kAll;
  return f;
}

Family gemma(const char* model_type) {
  Family f = named(model_type);
  f.config.norm = NormKind::kRmsPlusOne;
  f.config.activation = Activation::kGeluTanh;
  f.config.tied_embeddings = true;
  f.scales_embeddings = true;
  return f;
}

Family gemma2() {
  Family f = gemma("gemma2");
  DecoderNames& n = f.config.names;
  n.post_attention_norm = "post_attention_layernorm";
  n.mlp_norm = "pre_feedforward_layernorm";
  n.post_mlp_norm = "post_feedforward_layernorm";
  f.sliding = SlidingLayers::kAllButNth;
  f.sliding_pattern = 2;
  return f;
}

Family gemma3() {
  Family f = named("gemma3_text", gemma2());
  f.config.names.q_norm = "self_attn.q_norm";
  f.config.names.k_norm = "self_attn.k_norm";
  f.config.rope.theta = 1e6;
  f.config.local_rope.emplace();
  f.sliding_pattern = 6;
  return f;
}

Family gpt2() {
  Family f = named("gpt2");
  DecoderNames& n = f.config.names;
  n.embedding = "transformer.wte";
  n.positions = "transformer.wpe";
  n.final_norm = "transformer.ln_f";
  n.blocks = "transformer.h.";
  n.attention_norm = "ln_1";
  n.mlp_norm = "ln_2";
  n.qkv = {"attn.c_attn"};
  n.o = "attn.c_proj";
  n.gate_up = {"mlp.c_fc"};
  n.down = "mlp.c_proj";
  f.config.norm = NormKind::kLayer;
  f.config.norm_epsilon = 1e-5;
  f.config.activation = Activation::kGeluTanh;
  f.config.gated = false;
  f.config.qkv_bias = f.config.o_bias = f.config.mlp_bias = true;
  f.config.tied_embeddings = true;
  f.config.transposed_weights = true;
  f.rotates = false;
  f.times_wide = 4;
  return f;
}

Family opt() {
  Family f = named("opt");
  DecoderNames& n = f.config.names;
  n.embedding = "model.decoder.embed_tokens";
  n.positions = "model.decoder.embed_positions";
  n.final_norm = "model.decoder.final_layer_norm";
  n.blocks = "model.decoder.layers.";
  n.attention_norm = "self_attn_layer_norm";
  n.mlp_norm = "final_layer_norm";
  n.o = "self_attn.out_proj";
  n.gate_up = {"fc1"};
  n.down = "fc2";
  f.config.norm = NormKind::kLayer;
  f.config.norm_epsilon = 1e-5;
  f.config.activation = Activation::kRelu;
  f.config.gated = false;
  f.config.qkv_bias = f.config.o_bias = f.config.mlp_bias = true;
  f.config.tied_embeddings = true;
  f.config.position_offset = 2;
  f.rotates = false;
  return f;
}

Family gpt_neox() {
  Family f = named("gpt_neox");
  DecoderNames& n = f.config.names;
  n.embedding = "gpt_neox.embed_in";
  n.final_norm = "gpt_neox.final_layer_norm";
  n.head = "embed_out";
  n.blocks = "gpt_neox.layers.";
  n.qkv = {"attention.query_key_value"};
  n.o = "attention.dense";
  n.gate_up = {"mlp.dense_h_to_4h"};
  n.down = "mlp.dense_4h_to_h";
  f.config.norm = NormKind::kLayer;
  f.config.norm_epsilon = 1e-5;
  f.config.activation = Activation::kGelu;
  f.config.gated = false;
  f.config.qkv_bias = f.config.o_bias = f.config.mlp_bias = true;
  f.config.qkv_by_head = true;
  f.config.parallel_residual = true;
  return f;
}

Family bert() {
  Family f = named("bert");
  DecoderNames& n = f.config.names;
  n.embedding = "embeddings.word_embeddings";
  n.positions = "embeddings.position_embeddings";
  n.token_types = "embeddings.token_type_embeddings";
  n.embedding_norm = "embeddings.LayerNorm";
  n.final_norm = n.head = n.attention_norm = n.mlp_norm = "";
  n.blocks = "encoder.layer.";
  n.post_attention_norm = "attention.output.LayerNorm";
  n.post_mlp_norm = "output.LayerNorm";
  n.qkv = {"attention.self.query", "attention.self.key", "attention.self.value"};
  n.o = "attention.output.dense";
  n.gate_up = {"intermediate.dense"};
  n.down = "output.dense";
  f.config.norm = NormKind::kLayer;
  f.config.norm_epsilon = 1e-12;
  f.config.activation = Activation::kGelu;
  f.config.gated = false;
  f.config.qkv_bias = f.config.o_bias = f.config.mlp_bias = true;
  f.config.norm_of_sum = f.config.bidirectional = true;
  f.rotates = false;
  return f;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      named("llama"),   mistral(), mixtral(),      qwen2(),  qwen3(),  qwen3_moe(), olmo2(),
      named("granite"), phi3(),    gemma("gemma"), gemma2(), gemma3(), gpt2(),      opt(),
      gpt_neox(),       gpt_oss(), bert()};
  return kFamilies;
}

const Family* find_family(const std::string& model_type) {
  for (const Family& family : families()) {
    if (family.config.family == model_type) return &family;
  }
  return nullptr;
}

}  // namespace curvq
