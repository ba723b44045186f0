// Whole model directories: what is written is what was computed, everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/parallel.h"
#include "curvq/eval/evaluate.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/json.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kData = CURVQ_TEST_DATA;
const std::string kStories = kData + "/models/stories260K";

class QuantizeModel : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "curvq_quantize_" + std::to_string(getpid());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    options_.out = directory_ + "/out";
    options_.plan.on_indivisible = OnIndivisible::kKeep;
    windows_ = load_token_windows(kData + "/stories260K-tokens/calibration.safetensors", nullptr,
                                  {8, 0, 512});
  }
  void TearDown() override { fs::remove_all(directory_); }

  QuantizeReport run(const std::string& model = kStories) {
    return quantize_model(model, &windows_, options_,
                          [](const QuantizeReport&) { return std::string("{}\n"); });
  }
  // A copy of stories260K whose tensors may be changed.
  std::string copy_with(const std::function<void(const TensorInfo&, std::vector<float>&)>& change) {
    const std::string path = directory_ + "/copy";
    fs::create_directories(path);
    for (const char* name : {"config.json", "tokenizer.json"})
      fs::copy_file(kStories + "/" + name, path + "/" + name);
    const Checkpoint source(kStories);
    std::vector<TensorInfo> infos;
    for (const TensorView* tensor : source.tensors()) infos.push_back(*tensor);
    CheckpointWriter writer(path, infos);
    for (const TensorView* tensor : source.tensors()) {
      std::vector<float> values = tensor->to_f32();
      change(*tensor, values);
      writer.write(tensor->name, values.data(), tensor->num_bytes());
    }
    writer.finish();
    return path;
  }

  std::string directory_;
  QuantizeOptions options_;
  TokenWindows windows_;
};

std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file())
      out[entry.path().lexically_relative(directory)] = read_file(entry.path());
  }
  return out;
}

TEST_F(QuantizeModel, PackedAndDequantizedEnginesAgreeForEveryScheme) {
  for (const Scheme& scheme :
       {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32), Scheme::int4(64, false),
        Scheme::int4(0), Scheme::int8(), Scheme::fp8()}) {
    options_.plan.scheme = scheme;
    options_.overwrite = true;
    run();
    const EvalResult packed =
        evaluate(DecoderModel(options_.out, Engine::kPacked), windows_, nullptr);
    const EvalResult dense =
        evaluate(DecoderModel(options_.out, Engine::kDequantized), windows_, nullptr);
    EXPECT_NEAR(packed.nll, dense.nll, 1e-5) << scheme.describe();
  }
}

TEST_F(QuantizeModel, FollowsTheTokensThroughQuantizedLayers) {
  // The error of a layer, computed here from what the written checkpoint feeds it.
  options_.activations = Activations::kInt16;
  const QuantizeReport report = run();
  const DecoderModel original(kStories), quantized(options_.out, Engine::kDequantized);
  torch::NoGradGuard no_grad;
  torch::Tensor ids = torch::empty({8, 256}, torch::kInt64);
  for (int64_t i = 0; i < 8 * 256; ++i) ids.data_ptr<int64_t>()[i] = windows_.ids[i];
  torch::Tensor x = quantized.embed(ids);
  x = quantized.load_block(0).forward(x);
  const DecoderBlock block = quantized.load_block(1), before = original.load_block(1);
  BlockState state;
  state.x = x;
  for (const size_t group : {0, 1}) block.advance(group, state);
  const torch::Tensor input = state.input.reshape({8 * 256, 64}).to(torch::kFloat64);
  const torch::Tensor w = before.o.weight.to(torch::kFloat64),
                      d = w - block.o.weight.to(torch::kFloat64);
  const double expected =
      (torch::matmul(input, d.t()).square().sum() / torch::matmul(input, w.t()).square().sum())
          .item<double>();
  bool found = false;
  for (const LayerResult& layer : report.layers) {
    if (layer.name != "model.layers.1.self_attn.o_proj") continue;
    found = true;
    EXPECT_NEAR(layer.relative_error / expected, 1.0, 1e-4);
    EXPECT_LT(layer.relative_error, layer.rtn_relative_error);
  }
  EXPECT_TRUE(found);
}

TEST_F(QuantizeModel, SameInputGivesTheSameBytesOnAnyNumberOfThreads) {
  set_num_threads(1);
  run();
  const auto first = contents(options_.out);
  options_.out = directory_ + "/second";
  set_num_threads(2);
  run();
  EXPECT_EQ(first, contents(options_.out));
  set_num_threads(0);
}

// Other tokens than those of the calibration; KL(original || quantized).
TEST_F(QuantizeModel, EveryStepOfTheBestPresetBringsTheOutputsCloser) {
  const TokenWindows evaluation = load_token_windows(
      kData + "/stories260K-tokens/evaluation.safetensors", nullptr, {8, 0, 512});
  windows_ = load_token_windows(kData + "/stories260K-tokens/calibration.safetensors", nullptr,
                                {32, 0, 512});
  options_.overwrite = true;
  const DecoderModel original(kStories);
  const auto kl = [&] {
    run();
    return evaluate(DecoderModel(options_.out), evaluation, &original).kl_mean;
  };
  const double plain = kl();
  options_.gptq.search_scales = true;
  const double searched = kl();
  options_.refine.sweeps = 2;
  const double refined = kl();
  options_.input_correction = 1;
  options_.residual_correction = 0.5;
  const double corrected = kl();
  options_.token_weights = true;
  const double weighted = kl();
  options_.output_factor = true;
  const double two_sided = kl();
  EXPECT_LT(weighted, 0.75 * plain);
  EXPECT_LT(two_sided, 0.95 * weighted);
  EXPECT_LT(searched, 0.9 * plain);
  EXPECT_LT(refined, 0.9 * plain);
  EXPECT_LT(corrected, 0.75 * plain);
  EXPECT_LT(corrected, 0.95 * refined);
}

TEST_F(QuantizeModel, CalibrationWithIntegerActivationsIsAsGood) {
  options_.overwrite = true;
  const DecoderModel original(kStories);
  std::map<Activations, double> kl;
  for (const Activations activations :
       {Activations::kFloat32, Activations::kInt16, Activations::kInt8}) {
    options_.activations = activations;
    run();
    kl[activations] = evaluate(DecoderModel(options_.out), windows_, &original).kl_mean;
  }
  // Roundings that fall the other way move the KL by some per cent, up or down.
  for (const Activations activations : {Activations::kInt16, Activations::kInt8}) {
    EXPECT_NEAR(kl[activations] / kl[Activations::kFloat32], 1, 0.08);
    EXPECT_NE(kl[activations], kl[Activations::kFloat32]);
  }
}

TEST_F(QuantizeModel, CopiesOtherFilesAndWritesTheConfig) {
  run();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json",
                           "special_tokens_map.json"}) {
    EXPECT_EQ(read_file(options_.out + "/" + name), read_file(kStories + "/" + name));
  }
  const Json config = read_json_file(options_.out + "/config.json");
  const Json quantization = config.at("quantization_config");
  EXPECT_EQ(quantization.at("format"), "nvfp4-pack-quantized");
  const std::vector<std::string> ignore = quantization.at("ignore");
  EXPECT_THAT(ignore, testing::Contains("lm_head"));
  EXPECT_THAT(ignore, testing::Contains("model.layers.4.mlp.down_proj"));
  EXPECT_EQ(config.at("hidden_size"), 64);
}

TEST_F(QuantizeModel, FusedLayersShareOneTensorScale) {
  run();
  const Checkpoint checkpoint(options_.out);
  const auto scale = [&](const std::string& layer) {
    return checkpoint.at("model.layers.2." + layer + ".weight_global_scale").to_f32().at(0);
  };
  EXPECT_EQ(scale("self_attn.q_proj"), scale("self_attn.k_proj"));
  EXPECT_EQ(scale("self_attn.q_proj"), scale("self_attn.v_proj"));
  EXPECT_EQ(scale("mlp.gate_proj"), scale("mlp.up_proj"));
  EXPECT_NE(scale("self_attn.q_proj"), scale("self_attn.o_proj"));
}

TEST_F(QuantizeModel, SmallShardsLoadAgain) {
  options_.plan.scheme = Scheme::int8();
  options_.max_shard_bytes = 1 << 20;
  const std::string model = kData + "/models/llama_biases_sharded";
  windows_ = load_token_windows(model + "/logits.safetensors", nullptr, {});
  run(model);
  const EvalResult before = evaluate(DecoderModel(model), windows_, nullptr);
  const EvalResult after = evaluate(DecoderModel(options_.out), windows_, nullptr);
  EXPECT_NEAR(after.nll, before.nll, 0.05);
  EXPECT_NE(after.nll, before.nll);
}

TEST_F(QuantizeModel, MixedSchemesLoadAgain) {
  options_.plan.scheme = Scheme::nvfp4();
  options_.plan.rules = {SchemeRule::parse("*down_proj = int8", options_.plan.scheme),
                         SchemeRule::parse("*layers.0.*o_proj = keep", options_.plan.scheme)};
  run();
  const DecoderModel model(options_.out);
  EXPECT_EQ(model.quantization()->scheme_of("model.layers.3.mlp.down_proj")->name(), "int8");
  EXPECT_EQ(model.quantization()->scheme_of("model.layers.3.mlp.up_proj")->name(), "nvfp4");
  EXPECT_FALSE(model.quantization()->scheme_of("model.layers.0.self_attn.o_proj"));
  EXPECT_LT(evaluate(model, windows_, nullptr).nll, 3);
}

TEST_F(QuantizeModel, WeightThatIsNotFiniteIsFoundBeforeAnythingIsWritten) {
  const std::string model = copy_with([](const TensorInfo& tensor, std::vector<float>& values) {
    if (tensor.name == "model.layers.4.mlp.up_proj.weight") values[3 * 64 + 5] = NAN;
  });
  try {
    run(model);
    FAIL();
  } catch (const NumericalError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "model.layers.4.mlp.up_proj.weight has a value that is not finite at row 3, column 5"));
  }
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(QuantizeModel, ActivationThatOverflowsNamesLayerAndSample) {
  const std::string model = copy_with([](const TensorInfo& tensor, std::vector<float>& values) {
    // down_proj, which takes the overflowing products, is kept (172 inputs); the next layer tells.
    if (tensor.name == "model.layers.0.mlp.gate_proj.weight" ||
        tensor.name == "model.layers.0.mlp.up_proj.weight") {
      for (float& v : values) v *= 3e37f;
    }
  });
  try {
    run(model);
    FAIL();
  } catch (const NumericalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.1.self_attn.q_proj: its inputs are not "
                                        "finite from calibration sample 0 on"));
  }
  EXPECT_FALSE(fs::exists(options_.out));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()),
            1);  // only the copy
}

TEST_F(QuantizeModel, DeadInputsAreReported) {
  const std::string model = copy_with([](const TensorInfo& tensor, std::vector<float>& values) {
    if (tensor.name == "model.layers.1.input_layernorm.weight") values[7] = values[9] = 0;
  });
  for (const LayerResult& layer : run(model).layers) {
    EXPECT_EQ(layer.dead_inputs,
              layer.name.find("layers.1.self_attn.q_proj") != std::string::npos ||
                      layer.name.find("layers.1.self_attn.k_proj") != std::string::npos ||
                      layer.name.find("layers.1.self_attn.v_proj") != std::string::npos
                  ? 2
                  : 0)
        << layer.name;
  }
}

TEST_F(QuantizeModel, RefusesWhatCannotWorkBeforehand) {
  EXPECT_THROW(quantize_model(kStories, nullptr, options_, {}), UsageError);
  options_.plan.on_indivisible = OnIndivisible::kError;
  EXPECT_THROW(run(), UsageError);
  options_.plan.on_indivisible = OnIndivisible::kKeep;
  options_.max_memory_bytes = 1000;
  EXPECT_THROW(run(), ResourceError);
  options_.max_memory_bytes = 0;
  options_.dry_run = true;
  EXPECT_EQ(run().layers.size(), 30u);
  EXPECT_FALSE(fs::exists(options_.out));
  options_.dry_run = false;
  run();
  options_.input_correction = 0.5;
  options_.capture = Capture::kFloat;
  EXPECT_THROW(run(), UsageError);
  options_.capture = Capture::kSequential;
  options_.input_correction = 1.5;
  EXPECT_THROW(run(), UsageError);
  options_.input_correction = 0;
  EXPECT_THROW(run(), UsageError);                    // not empty
  EXPECT_THROW(run(options_.out), UnsupportedError);  // quantized already
}

}  // namespace
}  // namespace curvq
