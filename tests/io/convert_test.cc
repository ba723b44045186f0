#include "curvq/io/convert.h"

#include <cstring>
#include <random>

#include "curvq/formats/input_rounding.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/io/gguf.h"
#include "curvq/io/model_files.h"
#include "curvq/io/tokenizer.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::put;
using testing::TemporaryDirectory;

const std::string kModels = std::string(CURVQ_TEST_DATA) + "/models/";

ConvertReport convert(const std::string& model, const std::string& out, Layout layout,
                      std::optional<DType> dtype = std::nullopt) {
  ConvertOptions options;
  options.out = out;
  options.layout = layout;
  options.dtype = dtype;
  return convert_model(model, options, [](const ConvertReport&) { return "{}\n"; });
}

std::map<std::string, std::vector<float>> values_of(const std::string& model) {
  std::map<std::string, std::vector<float>> values;
  const Checkpoint checkpoint(model);
  for (const TensorView* tensor : checkpoint.tensors()) values[tensor->name] = tensor->to_f32();
  return values;
}

// A model of one block of [64, 128] layers whose linear layers are quantized by `scheme`, with the
// tokenizer of stories260K.
class ConvertTest : public ::testing::Test {
 protected:
  std::string make_model(const std::string& name, Scheme scheme) {
    const std::string path = directory_ / name;
    std::filesystem::create_directory(path);
    OrderedJson config = {{"architectures", {"LlamaForCausalLM"}},
                          {"model_type", "llama"},
                          {"hidden_size", 64},
                          {"intermediate_size", 128},
                          {"num_hidden_layers", 1},
                          {"num_attention_heads", 4},
                          {"num_key_value_heads", 2},
                          {"max_position_embeddings", 64},
                          {"rms_norm_eps", 1e-5},
                          {"rope_theta", 10000.0},
                          {"tie_word_embeddings", true},
                          {"vocab_size", 512}};
    QuantizationConfig quantization;
    quantization.groups.push_back({scheme, {"Linear"}});
    quantization.ignore = {"lm_head"};
    config["quantization_config"] = to_json(quantization);
    put(path + "/config.json", dump_json(config));
    put(path + "/tokenizer.json", read_file(kModels + "stories260K/tokenizer.json"));
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    std::vector<TensorData> tensors;
    const auto add_plain = [&](const std::string& tensor, std::vector<int64_t> shape) {
      tensors.emplace_back();
      static_cast<TensorInfo&>(tensors.back()) = {tensor, DType::kF32, std::move(shape)};
      std::vector<float> values(tensors.back().num_elements());
      for (float& value : values) value = normal(random);
      tensors.back().data.resize(values.size() * sizeof(float));
      std::memcpy(tensors.back().data.data(), values.data(), tensors.back().data.size());
    };
    const std::string block = "model.layers.0.";
    add_plain("model.embed_tokens.weight", {512, 64});
    add_plain("model.norm.weight", {64});
    add_plain(block + "input_layernorm.weight", {64});
    add_plain(block + "post_attention_layernorm.weight", {64});
    const std::tuple<const char*, int64_t, int64_t> layers[] = {
        {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 32, 64}, {"self_attn.v_proj", 32, 64},
        {"self_attn.o_proj", 64, 64}, {"mlp.gate_proj", 128, 64},   {"mlp.up_proj", 128, 64},
        {"mlp.down_proj", 64, 128}};
    for (const auto& [layer, rows, cols] : layers) {
      std::vector<float> weight(rows * cols);
      for (float& value : weight) value = normal(random);
      std::fill_n(weight.begin(), 32, 0.0f);  // a group of zeros
      QuantizedMatrix matrix =
          quantize_rtn(weight.data(), rows, cols, scheme, max_abs(weight.data(), rows * cols));
      matrix.input_scale = input_scale(scheme, 1.7f);
      for (TensorData& tensor : compressed_tensors_pack(block + layer, matrix))
        tensors.push_back(std::move(tensor));
      std::vector<float>& values = values_[block + layer + ".weight"];
      values.resize(weight.size());
      dequantize(matrix, values.data());
    }
    CheckpointWriter writer(path, {tensors.begin(), tensors.end()});
    for (const TensorData& tensor : tensors) writer.write(tensor);
    writer.finish();
    return path;
  }

  Scheme half_scales(Scheme scheme) {
    scheme.scale_dtype = DType::kF16;
    return scheme;
  }

  // Values of the layers, up to `tolerance` relative to each.
  void expect_values(const std::string& model, double tolerance) {
    const auto found = values_of(model);
    for (const auto& [name, wanted] : values_) {
      const std::vector<float>& values = found.at(name);
      ASSERT_EQ(values.size(), wanted.size()) << name;
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], wanted[i], tolerance * std::abs(wanted[i])) << name << " " << i;
    }
  }

  // There, back, and as values.
  void expect_round_trip(Scheme scheme, Layout layout, double tolerance) {
    const bool is_file = layout == Layout::kGguf;
    const std::string model = make_model("ct", scheme);
    const std::string there = directory_ / (is_file ? "there.gguf" : "there");
    const ConvertReport report = convert(model, there, layout);
    EXPECT_EQ(report.num_layers, 7);
    EXPECT_EQ(report.num_decoded, 0);
    convert(there, directory_ / "back", Layout::kCompressedTensors);
    convert(there, directory_ / "values", Layout::kPlain);
    expect_values(directory_ / "values", tolerance);
    const Checkpoint a(model), b(directory_ / "back");
    EXPECT_EQ(a.tensors().size(), b.tensors().size());
    for (const TensorView* tensor : a.tensors()) {
      const TensorView& other = b.at(tensor->name);
      ASSERT_EQ(other.dtype, tensor->dtype) << tensor->name;
      ASSERT_EQ(other.shape, tensor->shape) << tensor->name;
      if (tensor->name.ends_with("global_scale")) {
        EXPECT_NEAR(other.to_f32()[0], tensor->to_f32()[0], tolerance * tensor->to_f32()[0]);
        continue;
      }
      // Zero is written as code 0 or 8 of E2M1, and any scale serves a group of zeros.
      EXPECT_EQ(std::memcmp(other.data, tensor->data, tensor->num_bytes()), 0) << tensor->name;
    }
    const Json config = read_model_config(directory_ / "back");
    EXPECT_EQ(config.at("quantization_config"), read_model_config(model).at("quantization_config"));
  }

  TemporaryDirectory directory_;
  std::map<std::string, std::vector<float>> values_;
};

// A reciprocal in float32 is off by half a unit; two of them and the products by a few.
constexpr double kReciprocal = 4 * 1.2e-7;

TEST_F(ConvertTest, KeepsInt4AsQ4_0) {
  expect_round_trip(half_scales(Scheme::int4(32)), Layout::kGguf, 0);
}
TEST_F(ConvertTest, KeepsInt8AsQ8_0) {
  expect_round_trip(half_scales(Scheme::int8(32)), Layout::kGguf, 0);
}
TEST_F(ConvertTest, KeepsMxfp4AsBlocks) { expect_round_trip(Scheme::mxfp4(), Layout::kGguf, 0); }
TEST_F(ConvertTest, KeepsNvfp4AsBlocks) {
  expect_round_trip(Scheme::nvfp4(), Layout::kGguf, kReciprocal);
}
TEST_F(ConvertTest, KeepsNvfp4AsModelOpt) {
  expect_round_trip(Scheme::nvfp4(), Layout::kModelOpt, kReciprocal);
}
TEST_F(ConvertTest, KeepsNvfp4InputsAsModelOpt) {
  Scheme scheme = Scheme::nvfp4();
  scheme.inputs = InputFormat::kNvfp4;
  expect_round_trip(scheme, Layout::kModelOpt, kReciprocal);
  const Checkpoint modelopt(directory_ / "there");
  EXPECT_NEAR(modelopt.at("model.layers.0.mlp.up_proj.input_scale").to_f32()[0], 1.7 / 2688, 1e-10);
  EXPECT_EQ(read_model_config(directory_ / "there").at("quantization_config").at("quant_algo"),
            "NVFP4");
}
TEST_F(ConvertTest, LeavesInputsOutWhereALayoutHasNoPlaceForThem) {
  Scheme scheme = half_scales(Scheme::int8(0));
  scheme.inputs = InputFormat::kInt8;
  convert(make_model("ct", scheme), directory_ / "gptq", Layout::kGptq);
  convert(directory_ / "gptq", directory_ / "values", Layout::kPlain);
  expect_values(directory_ / "values", 0);
}
TEST_F(ConvertTest, KeepsInt4AsGptq) {
  expect_round_trip(half_scales(Scheme::int4(32)), Layout::kGptq, 0);
}
TEST_F(ConvertTest, KeepsZeroPointsAsGptqV2) {
  expect_round_trip(half_scales(Scheme::int4(64, false)), Layout::kGptqV2, 0);
}
TEST_F(ConvertTest, KeepsInt8AsGptq) {
  expect_round_trip(half_scales(Scheme::int8(0)), Layout::kGptq, 0);
}

TEST_F(ConvertTest, RefusesWithTheReason) {
  const auto refuses = [&](const std::string& model, Layout layout, const std::string& reason) {
    const std::string out = directory_ / (layout == Layout::kGguf ? "no.gguf" : "no");
    EXPECT_ERROR(convert(model, out, layout), UnsupportedError, HasSubstr(reason));
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  const std::string float_scales = make_model("a", Scheme::int4(32));
  refuses(float_scales, Layout::kGguf, "is no float16, which blocks of a GGUF need");
  refuses(float_scales, Layout::kGptq, "no float16, which the GPTQ layout needs");
  refuses(float_scales, Layout::kModelOpt, "of ModelOpt's layouts only NVFP4 is written");
  refuses(make_model("b", half_scales(Scheme::int4(32, false))), Layout::kGguf,
          "it has zero points");
  refuses(make_model("c", half_scales(Scheme::int4(16))), Layout::kGguf,
          "groups of 16 are no whole blocks of 32");
  refuses(make_model("d", Scheme::fp8()), Layout::kGguf, "a GGUF has no FP8 blocks");
  refuses(make_model("e", Scheme::nvfp4()), Layout::kGptq, "holds integers only");
  refuses(std::string(CURVQ_TEST_DATA) + "/gguf/llama.gguf", Layout::kCompressedTensors,
          "mlp.gate_proj.weight is in blocks of Q4_1");
}

TEST_F(ConvertTest, RefusesAZeroPointOfZeroInGptqV1) {
  // Groups without negative weights have their zero point at the lowest code.
  const std::string model = make_model("ct", half_scales(Scheme::int4(32, false)));
  const Checkpoint source(model);
  bool has_zero = false;
  const TensorView& zeros = source.at("model.layers.0.mlp.up_proj.weight_zero_point");
  for (int64_t i = 0; i < zeros.num_bytes(); ++i) {
    const auto byte = std::to_integer<unsigned>(zeros.data[i]);
    has_zero = has_zero || (byte & 15) == 0 || byte >> 4 == 0;
  }
  if (has_zero) {
    EXPECT_ERROR(convert(model, directory_ / "v1", Layout::kGptq), UnsupportedError,
                 HasSubstr("use gptq_v2"));
  } else {
    convert(model, directory_ / "v1", Layout::kGptq);
    convert(directory_ / "v1", directory_ / "values", Layout::kPlain);
    expect_values(directory_ / "values", 0);
  }
}

TEST(ConvertGguf, WritesWhatItReads) {
  TemporaryDirectory directory;
  for (const char* name : {"stories260K", "llama_gqa_tied", "llama_rope_llama3"}) {
    const std::string model = kModels + name, out = directory / (std::string(name) + ".gguf");
    const std::string source = directory / name;
    convert(model, source, Layout::kPlain);
    const std::string tokenizer = kModels + "stories260K/tokenizer.json";
    if (!std::filesystem::exists(source + "/tokenizer.json") &&
        std::string(name) != "stories260K") {
      // 160 tokens do not hold the tokenizer's 512.
      EXPECT_ERROR(convert(source, out, Layout::kGguf), UnsupportedError,
                   HasSubstr("tokenizer.json"));
      continue;
    }
    convert(source, out, Layout::kGguf);
    EXPECT_EQ(values_of(out), values_of(model)) << name;
    const Json a = read_model_config(model), b = read_model_config(out);
    for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "num_key_value_heads", "vocab_size",
                            "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"})
      EXPECT_EQ(a.at(key), b.at(key)) << name << " " << key;
    const Tokenizer original = Tokenizer::from_file(tokenizer);
    const Tokenizer again = Tokenizer::from_json(*read_model_file(out, "tokenizer.json"), out);
    for (const char* text : {"Once upon a time", " \xE2\x98\x83 <s> two  spaces"})
      EXPECT_EQ(again.encode(text, true), original.encode(text, true));
  }
}

TEST(ConvertPlain, RoundsToADtypeAndTellsWhatOverflows) {
  TemporaryDirectory directory;
  const std::string model = std::string(CURVQ_TEST_DATA) + "/gguf/llama.gguf";
  convert(model, directory / "bf16", Layout::kPlain, DType::kBF16);
  const auto exact = values_of(model), rounded = values_of(directory / "bf16");
  for (const auto& [name, values] : exact) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(rounded.at(name)[i], round_to_dtype(values[i], DType::kBF16)) << name;
  }
  std::filesystem::create_directory(directory / "huge");
  put(directory / "huge/config.json", R"({"model_type": "llama"})");
  SafetensorsWriter writer(directory / "huge/model.safetensors", {{"a", DType::kF32, {1}}});
  const float value = 1e6f;
  writer.write("a", &value, sizeof(value));
  writer.finish();
  EXPECT_ERROR(convert(directory / "huge", directory / "f16", Layout::kPlain, DType::kF16),
               NumericalError, HasSubstr("a: element 0 is 1e+06, beyond what F16 holds"));
  EXPECT_FALSE(std::filesystem::exists(directory / "f16"));
}

}  // namespace
}  // namespace curvq
