// Texts of their own length, one by one, as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace curvq {

class Tokenizer;

struct Sentences {
  std::vector<std::vector<int32_t>> ids;
  int64_t tokens = 0;  // of all
  int64_t cut = 0;     // sentences that were longer than max_length
  std::string origin;  // the file, for messages and reports
  std::string hash;    // xxh3 of the ids and lengths, hex
};

struct SentenceOptions {
  int64_t num_sentences = 0;  // the first so many; 0: all
  int64_t max_length = 0;     // in tokens, special ones included; longer ones lose their end
  int64_t vocab_size = 0;     // ids must be below; 0: not checked
};

// `source`: FILE.txt, a sentence each line that is not blank, or FILE.jsonl, one each `text`; with
// the special tokens of the tokenizer's template. Throws UsageError if the file does not exist or
// has fewer than num_sentences, FormatError for what is not UTF-8, not JSON or out of the
// vocabulary, naming the line.
Sentences load_sentences(const std::string& source, const Tokenizer& tokenizer,
                         const SentenceOptions& options);

}  // namespace curvq
