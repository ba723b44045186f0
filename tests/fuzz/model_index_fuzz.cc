// Input: model.safetensors.index.json of a directory with two shards; the same text also goes
// through the typed access to JSON and is written again.
#include <fstream>

#include "curvq/io/checkpoint.h"
#include "curvq/io/json.h"
#include "fuzzing.h"

using namespace curvq;

namespace {

struct Model {
  Model() {
    directory.link("model.safetensors.index.json", index);
    for (const char* shard : {"a.safetensors", "b.safetensors"}) {
      const std::string name = std::string(1, shard[0]) + ".weight";
      SafetensorsWriter writer(directory.path() + "/" + shard, {{name, DType::kU8, {1}}});
      writer.write(name, "x", 1);
      writer.finish();
    }
  }
  fuzzing::MemoryFile index;
  fuzzing::ScratchDirectory directory;
};

void read_members(const Json& json) {
  for (const char* key : {"vocab_size", "metadata", "a"}) {
    fuzzing::accepts([&] { json_int(json, key, "f"); });
    fuzzing::accepts([&] { json_int(json, key, 3, "f"); });
    fuzzing::accepts([&] { json_number(json, key, 0.5, "f"); });
    fuzzing::accepts([&] { json_bool(json, key, true, "f"); });
    fuzzing::accepts([&] { json_string(json, key, "", "f"); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Model model;
  const std::string text(reinterpret_cast<const char*>(data), size);
  model.index.set(text);
  fuzzing::accepts([] { Checkpoint(model.directory.path()).content_hash(); });
  fuzzing::accepts([&text] {
    const Json json = parse_json(text, "f");
    read_members(json);
    fuzzing::require(parse_json(dump_json(OrderedJson(json)), "f") == json);
  });
  return 0;
}
