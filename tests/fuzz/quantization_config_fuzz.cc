// Input: the quantization_config of a config.json.
#include "curvq/io/compressed_tensors.h"
#include "fuzzing.h"

using namespace curvq;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzzing::accepts([&text] {
    const QuantizationConfig config = parse_quantization_config(parse_json(text, "f"), "f");
    for (const char* name : {"lm_head", "model.layers.0.mlp.down_proj"}) {
      fuzzing::accepts([&] { config.scheme_of(name); });
    }
    // What was read can be written and read again.
    const QuantizationConfig again =
        parse_quantization_config(parse_json(dump_json(to_json(config)), "f"), "f");
    fuzzing::require(again.groups.size() == config.groups.size());
    for (size_t i = 0; i < config.groups.size() && config.groups.size() <= 10; ++i) {
      fuzzing::require(again.groups[i].scheme == config.groups[i].scheme);
      fuzzing::require(again.groups[i].targets == config.groups[i].targets);
    }
    fuzzing::require(again.ignore == config.ignore);
  });
  return 0;
}
