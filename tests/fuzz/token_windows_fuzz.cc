// Input: a byte that chooses the kind of data and the options, then the file.
#include "curvq/io/token_windows.h"
#include "curvq/io/tokenizer.h"
#include "fuzzing.h"

using namespace curvq;

namespace {

struct Files {
  Files() {
    for (const char* name : {"x.jsonl", "x.txt", "x.safetensors"})
      paths[count++] = directory.link(name, file);
  }
  fuzzing::MemoryFile file;
  fuzzing::ScratchDirectory directory;
  std::string paths[3];
  int count = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Files files;
  static const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"<unk>":4},)"
                           R"("merges":["a b"],"unk_token":"<unk>"}})",
                           "t");
  if (size == 0) return 0;
  files.file.set(data + 1, size - 1);
  TokenWindowsOptions options;
  options.num_samples = data[0] / 3 % 3;
  options.max_length = data[0] / 9 % 3;
  options.vocab_size = data[0] / 27 % 2 * 5;
  fuzzing::accepts([&] {
    const TokenWindows windows = load_token_windows(files.paths[data[0] % 3], &tokenizer, options);
    fuzzing::require(windows.num_windows > 0 && windows.length > 0);
    fuzzing::require(windows.ids.size() ==
                     static_cast<size_t>(windows.num_windows * windows.length));
    for (const int32_t id : windows.ids) {
      fuzzing::require(id >= 0 && (options.vocab_size == 0 || id < options.vocab_size));
    }
  });
  return 0;
}
