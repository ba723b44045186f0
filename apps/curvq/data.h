// Models and data sets named on the command line.
#pragma once

#include <optional>
#include <string>

#include "curvq/io/token_windows.h"
#include "curvq/io/tokenizer.h"
#include "options.h"

namespace curvq {
struct DecoderConfig;
}

namespace curvq::cli {

// True for a bare .safetensors file; false for a directory. Throws UsageError for what does not
// exist, UnsupportedError for other files.
bool is_bare_safetensors(const std::string& model);

// Declares --num-samples and --max-length.
void add_window_options(Options& options);

// The model directory's. Throws UnsupportedError with the remedy where it has none.
Tokenizer load_tokenizer(const std::string& model);

// Windows out of the file that `option` names, tokenized with the tokenizer of the model directory
// if it is text, an encoder's each with its special tokens. `config` is the model's.
TokenWindows load_windows(const Options& options, const std::string& option,
                          const std::string& model, const DecoderConfig& config);

// {"path", "hash", "windows", "length"} for the "inputs" of the JSON.
OrderedJson describe(const TokenWindows& windows);

}  // namespace curvq::cli
