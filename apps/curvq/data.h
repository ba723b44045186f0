// Models and data sets named on the command line.
#pragma once

#include <optional>
#include <string>

#include "curvq/io/token_windows.h"
#include "curvq/io/tokenizer.h"
#include "options.h"

namespace curvq::cli {

// True for a bare .safetensors file; false for a directory. Throws UsageError for what does not
// exist, UnsupportedError for other files.
bool is_bare_safetensors(const std::string& model);

// Declares --num-samples and --max-length.
void add_window_options(Options& options);

// The model directory's. Throws UnsupportedError with the remedy where it has none.
Tokenizer load_tokenizer(const std::string& model);

// Windows out of the file that `option` names, tokenized with the tokenizer of the model directory
// if it is text. `max_positions` and `vocab_size` are the model's.
TokenWindows load_windows(const Options& options, const std::string& option,
                          const std::string& model, int64_t max_positions, int64_t vocab_size);

// {"path", "hash", "windows", "length"} for the "inputs" of the JSON.
OrderedJson describe(const TokenWindows& windows);

}  // namespace curvq::cli
