#include "data.h"

#include <algorithm>
#include <filesystem>

#include "curvq/core/error.h"
#include "curvq/io/model_files.h"
#include "curvq/io/tokenizer.h"
#include "curvq/nn/decoder_config.h"

namespace curvq::cli {

namespace fs = std::filesystem;

bool is_bare_safetensors(const std::string& model) {
  if (is_model(model)) return false;
  if (!fs::exists(model)) throw UsageError(model + ": no such model directory or file");
  if (fs::path(model).extension() == ".safetensors") return true;
  throw UnsupportedError(
      model +
      ": not a model directory, a .gguf or a .safetensors file; those are what this command reads");
}

void add_window_options(Options& options) {
  options
      .add_integer("num-samples", "N", "use the first N windows; 0: all of them", 0,
                   int64_t{1} << 40, 0)
      .add_integer(
          "max-length", "TOKENS",
          "length of a window; text is cut into such windows (default: 512, or the model's maximum "
          "if "
          "that is smaller), longer rows of token ids are cut to it (default: as they are)",
          2, int64_t{1} << 31);
}

Tokenizer load_tokenizer(const std::string& model) {
  const auto text = read_model_file(model, "tokenizer.json");
  if (!text) {
    throw UnsupportedError(model_file_origin(model, "tokenizer.json") +
                           ": missing, so text cannot be read or written; copy the model's "
                           "tokenizer.json there, or give token ids (.safetensors)");
  }
  return Tokenizer::from_json(*text, model_file_origin(model, "tokenizer.json"));
}

TokenWindows load_windows(const Options& options, const std::string& option,
                          const std::string& model, const DecoderConfig& config) {
  const std::string source = options.text(option);
  const bool ids = source.find(".safetensors") != std::string::npos;
  std::optional<Tokenizer> tokenizer;
  if (!ids) {
    if (!fs::exists(source)) throw UsageError(source + ": no such file");
    tokenizer.emplace(load_tokenizer(model));
  }
  TokenWindowsOptions window_options;
  window_options.num_samples = options.integer("num-samples");
  window_options.vocab_size = config.vocab_size;
  window_options.special_tokens = config.bidirectional;
  if (options.has("max-length")) {
    window_options.max_length = options.integer("max-length");
  } else if (!ids) {
    window_options.max_length = std::min<int64_t>(512, config.max_positions);
  }
  return load_token_windows(source, tokenizer ? &*tokenizer : nullptr, window_options);
}

OrderedJson describe(const TokenWindows& windows) {
  return {{"path", windows.origin},
          {"hash", windows.hash},
          {"windows", windows.num_windows},
          {"length", windows.length}};
}

}  // namespace curvq::cli
