// Input: a GGUF file.
#include "curvq/io/checkpoint.h"
#include "curvq/io/model_files.h"
#include "curvq/io/tokenizer.h"
#include "fuzzing.h"

using namespace curvq;

namespace {

struct Model {
  Model() { path = directory.link("x.gguf", file); }
  fuzzing::MemoryFile file;
  fuzzing::ScratchDirectory directory;
  std::string path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Model model;
  model.file.set(data, size);
  fuzzing::accepts([] {
    const Checkpoint checkpoint(model.path);
    checkpoint.content_hash();
    for (const TensorView* tensor : checkpoint.tensors()) {
      fuzzing::require(checkpoint.find(tensor->name) == tensor);
      // Any piece is what it is in the whole.
      const int64_t count = tensor->num_elements(), begin = count / 3;
      std::vector<std::byte> whole;
      const std::byte* all = tensor->bytes(&whole);
      const size_t bytes = dtype_bytes(tensor->dtype);
      std::vector<std::byte> piece((count - begin) * bytes);
      tensor->read(begin, count - begin, piece.data());
      fuzzing::require(std::equal(piece.begin(), piece.end(), all + begin * bytes));
    }
  });
  for (const char* name : {"config.json", "tokenizer_config.json"})
    fuzzing::accepts([name] { read_model_file(model.path, name); });
  fuzzing::accepts([] {
    if (const auto text = read_model_file(model.path, "tokenizer.json"))
      Tokenizer::from_json(*text, "t").encode("some Text", true);
  });
  return 0;
}
