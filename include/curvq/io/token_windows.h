// Calibration and evaluation data: windows of token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace curvq {

class Tokenizer;

// Independent windows of equal length.
struct TokenWindows {
  std::vector<int32_t> ids;  // [num_windows, length], row-major
  int64_t num_windows = 0, length = 0;
  std::string origin;  // "FILE:NAME", for messages and reports
  std::string hash;    // xxh3 of the ids, hex

  const int32_t* window(int64_t i) const { return ids.data() + i * length; }
};

// The windows first, ..., first + count - 1; origin and hash stay those of all.
TokenWindows window_range(const TokenWindows& windows, int64_t first, int64_t count);

struct TokenWindowsOptions {
  int64_t num_samples = 0;      // the first so many windows; 0: all
  int64_t max_length = 0;       // of a window; 0: rows of ids as they are (text needs it)
  int64_t vocab_size = 0;       // ids must be below; 0: not checked
  bool special_tokens = false;  // each window of text is one to the tokenizer's template
};

// `source`: FILE.txt, FILE.jsonl (objects with a string `text`), FILE.safetensors (`input_ids`), or
// FILE.safetensors:NAME; ids int32 or int64 [n, length] (a vector is one window).
//   Text is tokenized whole (for .jsonl every record by itself, joined in order) and cut into
//   consecutive windows of max_length, special tokens included; a rest that is shorter is dropped.
//   A .jsonl file is read as far as num_samples needs.
// Rows of ids longer than max_length are cut to their first max_length ids. Negative ids or ids >=
// vocab_size among what is used are an error naming row, column, id and vocab_size.
// Throws UsageError if the file does not exist or text is given without a tokenizer, or if there
// are fewer windows than num_samples; FormatError for content that does not fit (empty or too
// short text, with both lengths; not UTF-8; no such tensor, with the names there are; wrong dtype
// or rank; no windows).
TokenWindows load_token_windows(const std::string& source, const Tokenizer* tokenizer,
                                const TokenWindowsOptions& options);

}  // namespace curvq
