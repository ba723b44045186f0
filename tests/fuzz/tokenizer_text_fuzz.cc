// Input: a byte that chooses one of the tokenizers in tests/data, then text.
#include <algorithm>
#include <string_view>

#include "curvq/io/tokenizer.h"
#include "fuzzing.h"

using namespace curvq;

namespace {

std::vector<Tokenizer> load_tokenizers() {
  std::vector<Tokenizer> tokenizers;
  for (const char* name : {"bytelevel", "characters", "gpt4", "metaspace", "stories260K"}) {
    tokenizers.push_back(
        Tokenizer::from_file(std::string(CURVQ_TEST_DATA) + "/tokenizer/" + name + ".json"));
  }
  return tokenizers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Tokenizer> tokenizers = load_tokenizers();
  if (size == 0) return 0;
  const Tokenizer& tokenizer = tokenizers[data[0] % tokenizers.size()];
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  fuzzing::accepts([&] {
    const std::vector<int32_t> ids = tokenizer.encode(text, false);
    for (const int32_t id : ids) fuzzing::require(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.decode(ids, false);
  });
  return 0;
}
