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
  EXPECT_THAT(error(with("rope_scaling", {{"rope_type", "yarn"}})),
              HasSubstr("rope scaling \"yarn\""));
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

}  // namespace
}  // namespace curvq
