#include "curvq/io/sentences.h"

#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/tokenizer.h"
#include "io/hash.h"
#include "io/text_records.h"

namespace curvq {

Sentences load_sentences(const std::string& source, const Tokenizer& tokenizer,
                         const SentenceOptions& options) {
  const std::string extension = std::filesystem::path(source).extension();
  if (extension != ".txt" && extension != ".jsonl") {
    throw UsageError(source + ": sentences must be FILE.txt, one a line, or FILE.jsonl");
  }
  std::error_code ignored;
  if (!std::filesystem::exists(source, ignored)) throw UsageError(source + ": does not exist");
  const auto added = static_cast<int64_t>(tokenizer.with_special_tokens({}).size());
  const int64_t longest = options.max_length - added;
  if (longest < 1) {
    throw UsageError(format("%s: sentences of %lld tokens leave no room beside %lld special tokens",
                            source.c_str(), static_cast<long long>(options.max_length),
                            static_cast<long long>(added)));
  }
  Sentences out;
  out.origin = source;
  io::Hasher hasher;
  const auto add = [&](const std::string& text, const std::string& origin) {
    io::require_utf8(text, origin);
    std::vector<int32_t> ids = tokenizer.encode(text, false);
    if (static_cast<int64_t>(ids.size()) > longest) {
      ids.resize(static_cast<size_t>(longest));
      ++out.cut;
    }
    ids = tokenizer.with_special_tokens(std::move(ids));
    if (ids.empty()) throw FormatError(origin + ": has no tokens");
    for (const int32_t id : ids) {
      if (options.vocab_size == 0 || id < options.vocab_size) continue;
      throw FormatError(format("%s: the tokenizer gives id %d, the model's vocabulary has %lld",
                               origin.c_str(), id, static_cast<long long>(options.vocab_size)));
    }
    const auto length = static_cast<int64_t>(ids.size());
    hasher.add(&length, sizeof(length));
    hasher.add(ids.data(), ids.size() * sizeof(int32_t));
    out.tokens += length;
    out.ids.push_back(std::move(ids));
    return static_cast<int64_t>(out.ids.size()) != options.num_sentences;
  };
  const std::string content = read_file(source);
  if (extension == ".jsonl") {
    io::for_each_record(content, source, add);
  } else {
    io::for_each_line(content, source, add);
  }
  const auto found = static_cast<int64_t>(out.ids.size());
  if (found == 0) throw FormatError(source + ": has no sentences");
  if (found < options.num_sentences) {
    throw UsageError(format("%s: has %lld sentences, %lld samples are wanted", source.c_str(),
                            static_cast<long long>(found),
                            static_cast<long long>(options.num_sentences)));
  }
  out.hash = hasher.hex();
  return out;
}

}  // namespace curvq
