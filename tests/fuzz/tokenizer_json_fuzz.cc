// Input: a tokenizer.json and, behind a zero byte, text to encode with it.
#include <string_view>

#include "curvq/io/tokenizer.h"
#include "fuzzing.h"

using namespace curvq;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), size);
  const std::string_view text = zero < size ? input.substr(zero + 1) : "some Text, 12 \xC3\xA9\n ";
  fuzzing::accepts([&] {
    const Tokenizer tokenizer = Tokenizer::from_json(std::string(input.substr(0, zero)), "t");
    tokenizer.token_id("a");
    fuzzing::accepts([&] {
      const std::vector<int32_t> ids = tokenizer.encode(text, true);
      for (const int32_t id : ids) fuzzing::require(id >= 0 && id < tokenizer.vocab_size());
      tokenizer.decode(ids, false);
      tokenizer.decode(ids, true);
    });
  });
  return 0;
}
