#include "curvq/io/compressed_tensors.h"
#include "curvq/io/safetensors.h"
#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

QuantizationConfig one_group(const Scheme& scheme) { return {{{scheme, {"Linear"}}}, {"lm_head"}}; }

QuantizationConfig parse(const std::string& text) {
  return parse_quantization_config(parse_json(text, "config.json"), "config.json");
}

// A config whose one group has these weights.
std::string with_weights(const std::string& weights, const std::string& format = "pack-quantized") {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":)" + weights + "}}}";
}

// A config with this member beside valid ones.
std::string with_member(const std::string& member) {
  return R"({"quant_method":"compressed-tensors","format":"pack-quantized",)" + member +
         R"(,"config_groups":{"group_0":{"targets":["Linear"],"weights":)"
         R"({"num_bits":4,"type":"int","strategy":"group","group_size":32}}}})";
}

TEST(QuantizationConfigJson, Nvfp4IsAsCompressedTensorsWritesIt) {
  EXPECT_EQ(
      to_json(one_group(Scheme::nvfp4())).dump(),
      R"({"quant_method":"compressed-tensors","version":"0.20.1","format":"nvfp4-pack-quantized",)"
      R"("quantization_status":"compressed","global_compression_ratio":null,"ignore":["lm_head"],)"
      R"("kv_cache_scheme":null,"sparsity_config":{},"transform_config":{},"moe_sparsity_config":null,)"
      R"("config_groups":{"group_0":{"targets":["Linear"],"format":"nvfp4-pack-quantized",)"
      R"("input_activations":null,"output_activations":null,"weights":{"num_bits":4,"type":"float",)"
      R"("strategy":"tensor_group","group_size":16,"symmetric":true,"dynamic":false,)"
      R"("scale_dtype":"torch.float8_e4m3fn"}}}})");
}

std::string weights_of(const Scheme& scheme) {
  return to_json(one_group(scheme))["config_groups"]["group_0"]["weights"].dump();
}

TEST(QuantizationConfigJson, WeightsOfEveryScheme) {
  EXPECT_EQ(weights_of(Scheme::mxfp4()),
            R"({"num_bits":4,"type":"float","strategy":"group","group_size":32,"symmetric":true,)"
            R"("dynamic":false,"scale_dtype":"torch.uint8"})");
  EXPECT_EQ(weights_of(Scheme::int4(128)),
            R"({"num_bits":4,"type":"int","strategy":"group","group_size":128,"symmetric":true,)"
            R"("dynamic":false})");
  EXPECT_EQ(
      weights_of(Scheme::int4(0, false)),
      R"({"num_bits":4,"type":"int","strategy":"channel","symmetric":false,"dynamic":false})");
  EXPECT_EQ(weights_of(Scheme::int8()),
            R"({"num_bits":8,"type":"int","strategy":"channel","symmetric":true,"dynamic":false})");
  EXPECT_EQ(
      weights_of(Scheme::fp8()),
      R"({"num_bits":8,"type":"float","strategy":"channel","symmetric":true,"dynamic":false})");
}

Scheme with_inputs(Scheme scheme, InputFormat inputs) {
  scheme.inputs = inputs;
  return scheme;
}

const Scheme kWithInputs[] = {with_inputs(Scheme::nvfp4(), InputFormat::kNvfp4),
                              with_inputs(Scheme::mxfp4(), InputFormat::kMxfp4),
                              with_inputs(Scheme::fp8(), InputFormat::kFp8),
                              with_inputs(Scheme::fp8(), InputFormat::kFp8Tensor),
                              with_inputs(Scheme::int8(), InputFormat::kInt8),
                              with_inputs(Scheme::int4(128), InputFormat::kFp8)};

// Its presets NVFP4, MXFP4, FP8_DYNAMIC, FP8, W8A8 and W4AFP8, without what is null.
TEST(QuantizationConfigJson, InputsAreAsCompressedTensorsWritesThem) {
  const SafetensorsFile golden(std::string(CURVQ_TEST_DATA) + "/formats/ct_inputs.safetensors");
  for (const Scheme& scheme : kWithInputs) {
    const TensorView& tensor = golden.at(std::string(input_format_name(scheme.inputs)) + "/config");
    Json wanted = parse_json(
        {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.num_bytes())},
        "golden");
    for (auto it = wanted.begin(); it != wanted.end();)
      it = it->is_null() ? wanted.erase(it) : std::next(it);
    const OrderedJson group = to_json(one_group(scheme))["config_groups"]["group_0"];
    EXPECT_EQ(Json::parse(group["input_activations"].dump()), wanted) << scheme.describe();
  }
}

TEST(QuantizationConfigJson, InputsChooseTheLayoutOfInt8Only) {
  std::vector<std::string> formats;
  for (const Scheme& scheme : kWithInputs) formats.push_back(compressed_tensors_format(scheme));
  EXPECT_THAT(formats,
              ElementsAre("nvfp4-pack-quantized", "mxfp4-pack-quantized", "float-quantized",
                          "float-quantized", "int-quantized", "pack-quantized"));
}

TEST(ParseQuantizationConfig, ReadsTheInputsThatToJsonWrites) {
  for (const Scheme& scheme : kWithInputs) {
    EXPECT_EQ(parse(dump_json(to_json(one_group(scheme)))).groups[0].scheme, scheme)
        << scheme.describe();
  }
}

TEST(QuantizationConfigJson, DifferentFormatsAreMixedPrecision) {
  QuantizationConfig config = {
      {{Scheme::nvfp4(), {"re:.*mlp.*"}}, {Scheme::int8(), {"a.b", "a.c"}}}, {}};
  const OrderedJson json = to_json(config);
  EXPECT_EQ(json["format"], "mixed-precision");
  EXPECT_EQ(json["config_groups"]["group_0"]["format"], "nvfp4-pack-quantized");
  EXPECT_EQ(json["config_groups"]["group_1"]["format"], "pack-quantized");
  EXPECT_EQ(json["config_groups"]["group_1"]["targets"], OrderedJson({"a.b", "a.c"}));
  EXPECT_EQ(json["ignore"].dump(), "[]");
  config.groups[0].scheme = Scheme::int4(32);
  EXPECT_EQ(to_json(config)["format"], "pack-quantized");
  EXPECT_THROW(to_json({}), std::logic_error);
}

TEST(ParseQuantizationConfig, ReadsWhatToJsonWrites) {
  QuantizationConfig config;
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(128),
                               Scheme::int4(0, false), Scheme::int8(32), Scheme::fp8()}) {
    config.groups.push_back({scheme, {"re:.*" + scheme.name(), "x." + scheme.name()}});
  }
  config.ignore = {"lm_head", "re:.*vision.*"};
  const QuantizationConfig back = parse(dump_json(to_json(config)));
  ASSERT_EQ(back.groups.size(), config.groups.size());
  for (size_t i = 0; i < config.groups.size(); ++i) {
    EXPECT_EQ(back.groups[i].scheme, config.groups[i].scheme);
    EXPECT_EQ(back.groups[i].targets, config.groups[i].targets);
  }
  EXPECT_EQ(back.ignore, config.ignore);
}

// Shaped as llm-compressor wrote them in 2024 and 2025.
TEST(ParseQuantizationConfig, ReadsOlderFiles) {
  const QuantizationConfig int4 = parse(R"({
    "config_groups": {"group_0": {"input_activations": null, "output_activations": null,
      "targets": ["Linear"], "weights": {"actorder": "weight", "block_structure": null,
      "dynamic": false, "group_size": 128, "num_bits": 4, "observer": "minmax",
      "observer_kwargs": {}, "strategy": "group", "symmetric": true, "type": "int"}}},
    "format": "pack-quantized", "global_compression_ratio": 1.89, "ignore": ["lm_head"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "frozen", "sparsity_config": {"format": "dense", "global_sparsity": 0.1,
    "ignore": [], "registry_requires_subclass": false, "sparsity_structure": "unstructured"}})");
  EXPECT_EQ(int4.groups[0].scheme, Scheme::int4(128));
  const QuantizationConfig fp8 = parse(R"({
    "config_groups": {"group_0": {"input_activations": null, "output_activations": null,
      "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
      "group_size": null, "num_bits": 8, "observer": "minmax", "observer_kwargs": {},
      "strategy": "tensor", "symmetric": true, "type": "float"}}},
    "format": "naive-quantized", "ignore": null, "quant_method": "compressed-tensors",
    "transform_config": {"config_groups": {}}})");
  EXPECT_EQ(fp8.groups[0].scheme, Scheme::fp8());
}

TEST(ParseQuantizationConfig, DefaultsAreThoseOfCompressedTensors) {
  EXPECT_EQ(parse(with_weights("{}")).groups[0].scheme, Scheme::int8());
  EXPECT_EQ(parse(with_weights(R"({"num_bits":4,"group_size":32})")).groups[0].scheme,
            Scheme::int4(32));
  EXPECT_EQ(parse(with_weights(R"({"num_bits":4,"group_size":-1})")).groups[0].scheme,
            Scheme::int4(0));
  EXPECT_EQ(
      parse(with_weights(R"({"num_bits":4,"type":"INT","strategy":"Channel","group_size":-1})"))
          .groups[0]
          .scheme,
      Scheme::int4(0));
}

TEST(ParseQuantizationConfig, OtherMethodsAreNamed) {
  EXPECT_ERROR(parse(R"({"quant_method":"gptq","bits":4})"), UnsupportedError,
               AllOf(HasSubstr("config.json"), HasSubstr("\"quant_method\" is \"gptq\"")));
  EXPECT_ERROR(parse(R"({"bits":4})"), FormatError, HasSubstr("\"quant_method\" is missing"));
  EXPECT_ERROR(parse("[]"), FormatError, HasSubstr("found array"));
}

TEST(ParseQuantizationConfig, UnreadSettingsAreNamedWithTheirValue) {
  const auto expect_unsupported = [](const std::string& text, const std::string& part) {
    EXPECT_ERROR(parse(text), UnsupportedError, AllOf(HasSubstr("config.json"), HasSubstr(part)));
  };
  expect_unsupported(with_member(R"("kv_cache_scheme":{"num_bits":8})"),
                     R"("kv_cache_scheme" is {"num_bits":8})");
  expect_unsupported(with_member(R"("sparsity_config":{"format":"sparse-24-bitmask"})"),
                     "sparse-24");
  expect_unsupported(with_member(R"("transform_config":{"config_groups":{"R1":{}}})"), "\"R1\"");
  expect_unsupported(with_weights(R"({"num_bits":3})"), "3-bit int");
  expect_unsupported(
      with_weights(R"({"num_bits":8,"strategy":"block","block_structure":[128,128]})"),
      R"("strategy" is "block")");
  expect_unsupported(with_weights(R"({"num_bits":4,"actorder":"group"})"),
                     R"("actorder" is "group")");
  expect_unsupported(with_weights(R"({"num_bits":4,"actorder":true})"), "\"actorder\" is true");
  expect_unsupported(with_weights(R"({"dynamic":"local"})"), "\"dynamic\" is \"local\"");
  expect_unsupported(with_weights(R"({"num_bits":8,"type":"float","group_size":32})"),
                     "8-bit float");
  expect_unsupported(
      with_weights(R"({"num_bits":4,"type":"float","group_size":32,"symmetric":false})"),
      "asymmetric float");
  expect_unsupported(
      with_weights(R"({"num_bits":4,"type":"int","strategy":"tensor_group","group_size":16})"),
      "tensor_group");
  expect_unsupported(with_weights("{}", "marlin-24"), R"("format" is "marlin-24")");
  expect_unsupported(with_weights("{}", "dense"), R"("format" is "dense")");
  expect_unsupported(
      R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["Linear"],)"
      R"("weights":{},"input_activations":{"num_bits":8}}}})",
      "group_0.input_activations: 8-bit int with strategy tensor, group size 0 and dynamic false");
  expect_unsupported(
      R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["Linear"],)"
      R"("weights":{},"input_activations":{"type":"float","strategy":"token","dynamic":true}}}})",
      "group_0: inputs fp8 to weights of int8 channel");
  expect_unsupported(
      R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["Linear"],)"
      R"("weights":{},"output_activations":{"num_bits":8}}}})",
      R"("output_activations" is {"num_bits":8})");
}

TEST(ParseQuantizationConfig, ContradictionsAreFormatErrors) {
  const auto expect_rejected = [](const std::string& text, const std::string& part) {
    EXPECT_ERROR(parse(text), FormatError, AllOf(HasSubstr("config.json"), HasSubstr(part)));
  };
  expect_rejected(R"({"quant_method":"compressed-tensors"})", "config_groups");
  expect_rejected(R"({"quant_method":"compressed-tensors","config_groups":{}})", "config_groups");
  expect_rejected(R"({"quant_method":"compressed-tensors","config_groups":{"W4A16":["Linear"]}})",
                  "W4A16 must be an object");
  expect_rejected(with_weights("[]"), "weights must be an object");
  expect_rejected(with_weights("null"), "\"weights\" is missing");
  expect_rejected(with_weights(R"({"strategy":"group"})"), "must be positive");
  expect_rejected(with_weights(R"({"strategy":"channel","group_size":32})"),
                  "contradicts group_size 32");
  expect_rejected(with_weights("{}", "nvfp4-pack-quantized"),
                  "contradicts weights of int8 channel");
  expect_rejected(with_weights(R"({"num_bits":"4"})"), "\"num_bits\" must be an integer");
  expect_rejected(with_member(R"("ignore":"lm_head")"), "\"ignore\" must be a list of strings");
  expect_rejected(with_member(R"("ignore":["re:("])"), "ignore: regular expression");
  expect_rejected(
      R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":[],"weights":{}}}})",
      "\"targets\" is missing or empty");
}

TEST(SchemeOf, IgnoredAndUntargetedLayersHaveNone) {
  const QuantizationConfig config = {{{Scheme::int4(32), {"re:.*proj$", "head"}}},
                                     {"lm_head", "re:vision\\."}};
  EXPECT_EQ(config.scheme_of("model.q_proj"), Scheme::int4(32));
  EXPECT_EQ(config.scheme_of("head"), Scheme::int4(32));
  EXPECT_EQ(config.scheme_of("lm_head"), std::nullopt);
  EXPECT_EQ(config.scheme_of("vision.q_proj"), std::nullopt);
  EXPECT_EQ(config.scheme_of("model.vision.q_proj"), Scheme::int4(32));
  EXPECT_EQ(config.scheme_of("model.gate"), std::nullopt);
}

TEST(SchemeOf, NamesComeBeforePatternsBeforeClasses) {
  const QuantizationConfig config = {{{Scheme::int8(), {"Linear"}},
                                      {Scheme::mxfp4(), {"re:.*mlp.*"}},
                                      {Scheme::nvfp4(), {"re:.*down.*"}},
                                      {Scheme::fp8(), {"layers.0.mlp.down"}}},
                                     {}};
  EXPECT_EQ(config.scheme_of("layers.0.attn.q"), Scheme::int8());
  EXPECT_EQ(config.scheme_of("layers.0.mlp.up"), Scheme::mxfp4());
  EXPECT_EQ(config.scheme_of("layers.1.mlp.down"), Scheme::mxfp4());  // the first of equals
  EXPECT_EQ(config.scheme_of("layers.0.mlp.down"), Scheme::fp8());
}

}  // namespace
}  // namespace curvq
