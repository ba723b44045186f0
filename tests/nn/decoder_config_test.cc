#include "curvq/nn/decoder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/io/atomic_output.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Json llama() {
  return {{"model_type", "llama"},    {"vocab_size", 512},      {"hidden_size", 64},
          {"intermediate_size", 172}, {"num_hidden_layers", 5}, {"num_attention_heads", 8},
          {"num_key_value_heads", 4}, {"rms_norm_eps", 1e-5}};
}

class Config : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "curvq_config_" + std::to_string(getpid());
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  DecoderConfig read(const Json& json) {
    write_file(directory_ + "/config.json", json.dump());
    return DecoderConfig::from_directory(directory_);
  }
  std::string error(const Json& json) {
    try {
      read(json);
    } catch (const Error& error) {
      return std::to_string(error.exit_code()) + " " + error.what();
    }
    return "no error";
  }
  std::string directory_;
};

TEST_F(Config, ReadsWhatIsThereAndFillsInTheRest) {
  const DecoderConfig c = read(llama());
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.max_positions, 2048);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(expected_tensors(c).size(), 3u + 5 * 9);
}

TEST_F(Config, ReadsBothSpellingsOfRope) {
  Json old = llama(), young = llama();
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 256}};
  old["rope_theta"] = 5e5;
  old["rope_scaling"] = scaling;
  old["rope_scaling"]["type"] = "llama3";
  young["rope_parameters"] = scaling;
  young["rope_parameters"]["rope_type"] = "llama3";
  young["rope_parameters"]["rope_theta"] = 5e5;
  for (const Json& json : {old, young}) {
    const RopeConfig rope = read(json).rope;
    EXPECT_EQ(rope.theta, 5e5);
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::kLlama3);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.original_max_positions, 256);
  }
}

TEST_F(Config, ReadsBothSpellingsOfTwoRopes) {
  Json old = llama(), young;
  old["model_type"] = "gemma3_text";
  old["sliding_window"] = 32;
  young = old;
  old["rope_theta"] = 5e5;
  old["rope_local_base_freq"] = 2e4;
  old["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  old["sliding_window_pattern"] = 3;
  young["rope_parameters"]["full_attention"] = {
      {"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}};
  young["rope_parameters"]["sliding_attention"] = {{"rope_type", "default"}, {"rope_theta", 2e4}};
  const std::string slides = "sliding_attention", full = "full_attention";
  young["layer_types"] = {slides, slides, full, slides, slides};
  for (const Json& json : {old, young}) {
    const DecoderConfig c = read(json);
    EXPECT_EQ(c.rope.theta, 5e5);
    EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::kLinear);
    ASSERT_TRUE(c.local_rope);
    EXPECT_EQ(c.local_rope->theta, 2e4);
    EXPECT_EQ(c.local_rope->scaling, RopeConfig::Scaling::kNone);
    EXPECT_EQ(c.windows, (std::vector<int64_t>{32, 32, 0, 32, 32}));
  }
}

TEST_F(Config, WhatAFamilyCannotHaveIsSaid) {
  const auto with = [](const char* family, const char* key, Json value) {
    Json json = llama();
    json["model_type"] = family;
    json["sliding_window"] = 8;
    json[key] = std::move(value);
    return json;
  };
  EXPECT_THAT(error(with("opt", "do_layer_norm_before", false)),
              HasSubstr("do_layer_norm_before is false, which is not handled"));
  EXPECT_THAT(error(with("opt", "word_embed_proj_dim", 32)), HasSubstr("word_embed_proj_dim"));
  EXPECT_THAT(error(with("gpt2", "scale_attn_by_inverse_layer_idx", true)),
              HasSubstr("scale_attn_by_inverse_layer_idx is true"));
  EXPECT_THAT(error(with("phi3", "partial_rotary_factor", 0.4)),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(error(with("mistral", "sliding_window", -4)), HasSubstr("sliding_window is -4"));
  EXPECT_THAT(error(with("gemma2", "layer_types", {"full_attention"})), HasSubstr("layer_types"));
  EXPECT_THAT(error(with("gemma2", "layer_types", Json(5, "chunked_attention"))),
              HasSubstr("\"chunked_attention\""));
  EXPECT_THAT(error(with("qwen3_moe", "num_experts", 0)), HasSubstr("num_experts"));
  EXPECT_THAT(error(with("gemma2", "attn_logit_softcapping", -1)),
              HasSubstr("attn_logit_softcapping is -1"));
}

TEST_F(Config, AbsurdValuesAreNamed) {
  const auto with = [](const char* key, Json value) {
    Json json = llama();
    json[key] = std::move(value);
    return json;
  };
  EXPECT_THAT(error(with("model_type", "mamba")),
              HasSubstr("3 " + directory_ +
                        "/config.json: model_type \"mamba\" is not handled; handled are llama"));
  EXPECT_THAT(error(with("hidden_size", 0)), HasSubstr("hidden_size is 0"));
  EXPECT_THAT(error(with("num_hidden_layers", -3)), HasSubstr("num_hidden_layers is -3"));
  EXPECT_THAT(error(with("vocab_size", 1e18)), testing::StartsWith("3 "));
  EXPECT_THAT(error(with("num_key_value_heads", 3)),
              HasSubstr("num_key_value_heads 3 does not divide num_attention_heads 8"));
  EXPECT_THAT(error(with("head_dim", 7)), HasSubstr("head_dim is 7"));
  EXPECT_THAT(error(with("hidden_act", "mish")), HasSubstr("hidden_act \"mish\""));
  EXPECT_THAT(error(with("rms_norm_eps", -1)), HasSubstr("rms_norm_eps is -1"));
  EXPECT_THAT(error(with("hidden_size", "64")), HasSubstr("hidden_size"));
  EXPECT_THAT(error(with("rope_scaling", {{"rope_type", "dynamic"}})),
              HasSubstr("rope scaling \"dynamic\""));
  EXPECT_THAT(
      error(with("rope_scaling", {{"rope_type", "yarn"}, {"beta_fast", 1}, {"beta_slow", 32}})),
      HasSubstr("beta_fast (1) above beta_slow (32)"));
  EXPECT_THAT(error(with("rope_theta", 0)), HasSubstr("rope_theta is 0"));
  Json missing = llama();
  missing.erase("vocab_size");
  EXPECT_THAT(error(missing), HasSubstr("vocab_size"));
  EXPECT_THAT(error(Json::array()), HasSubstr("not a JSON object"));
}

TEST_F(Config, MissingDirectoryOrFile) {
  EXPECT_THROW(DecoderConfig::from_directory(directory_ + "/none"), UsageError);
  EXPECT_THROW(DecoderConfig::from_directory(directory_), FormatError);
}

TEST_F(Config, ShapesAgainstTensorsAreChecked) {
  const std::string model = std::string(CURVQ_TEST_DATA) + "/models/stories260K";
  fs::copy(model + "/model.safetensors", directory_ + "/model.safetensors");
  Json json = read_json_file(model + "/config.json");
  json["intermediate_size"] = 176;
  write_file(directory_ + "/config.json", json.dump());
  try {
    DecoderModel{directory_};
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.0.mlp.gate_proj.weight has shape [172, 64], "
                                        "config.json makes it [176, 64]"));
  }
}

TEST(FusedGroupKey, IsEqualForLayersThatLoadersFuse) {
  EXPECT_EQ(fused_group_key("model.layers.0.self_attn.q_proj"),
            fused_group_key("model.layers.0.self_attn.v_proj"));
  EXPECT_NE(fused_group_key("model.layers.0.self_attn.q_proj"),
            fused_group_key("model.layers.1.self_attn.q_proj"));
  EXPECT_EQ(fused_group_key("a.gate_proj"), fused_group_key("a.up_proj"));
  EXPECT_EQ(fused_group_key("a.o_proj"), "a.o_proj");
  EXPECT_EQ(fused_group_key("q_proj"), fused_group_key("k_proj"));
}

TEST_F(Config, Encoders) {
  Json json = {
      {"model_type", "bert"},     {"vocab_size", 512},           {"hidden_size", 64},
      {"intermediate_size", 172}, {"num_hidden_layers", 5},      {"num_attention_heads", 8},
      {"type_vocab_size", 2},     {"tie_word_embeddings", true}, {"architectures", {"BertModel"}}};
  const DecoderConfig plain = read(json);
  EXPECT_TRUE(plain.bidirectional);
  EXPECT_FALSE(plain.tied_embeddings);
  EXPECT_EQ(plain.names.block(1), "encoder.layer.1.");
  json["architectures"] = {"BertForMaskedLM"};
  EXPECT_EQ(read(json).names.block(1), "bert.encoder.layer.1.");
  EXPECT_EQ(read(json).names.token_types, "bert.embeddings.token_type_embeddings");
  json.erase("architectures");
  EXPECT_EQ(read(json).names.embedding, "embeddings.word_embeddings");
  json["position_embedding_type"] = "relative_key";
  EXPECT_THAT(error(json), HasSubstr("position_embedding_type \"relative_key\""));
  json["position_embedding_type"] = "absolute";
  json["is_decoder"] = true;
  EXPECT_THAT(error(json), HasSubstr("is_decoder is true"));
  json["is_decoder"] = false;
  json.erase("type_vocab_size");
  EXPECT_THAT(error(json), HasSubstr("type_vocab_size"));
}

}  // namespace
}  // namespace curvq
