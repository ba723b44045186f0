// What the files of a model directory say, as the metadata of a GGUF.
#pragma once

#include <string>

#include "curvq/io/gguf_writer.h"
#include "curvq/io/json.h"

namespace curvq::io {

// general.* and llama.* out of config.json. Throws UnsupportedError for another family or rope
// scaling than a GGUF of curvq holds.
GgufMetadata gguf_architecture(const Json& config, const std::string& origin);

// The quotients of llama3 rope scaling, that llama.cpp wants as tensor rope_freqs.weight; empty for
// other scalings.
std::vector<float> gguf_rope_factors(const Json& config, const std::string& origin);

// tokenizer.ggml.* out of tokenizer.json and tokenizer_config.json of `model`, with `vocab_size`
// tokens. Throws UnsupportedError for a tokenizer that llama.cpp has no name for.
GgufMetadata gguf_vocabulary(const std::string& model, const Json& config, int64_t vocab_size);

}  // namespace curvq::io
