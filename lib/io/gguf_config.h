// What the metadata of a GGUF says, in the form of a model directory's files.
#pragma once

#include "curvq/io/gguf.h"
#include "curvq/io/json.h"

namespace curvq::io {

// What divides frequency i of rotary embeddings by Llama 3.1's scaling: 1 for wavelengths below
// original / high, factor above original / low, and between them what interpolates the frequency.
struct Llama3Rope {
  double factor, low, high, original;
};
double llama3_factor(const Llama3Rope& rope, double theta, int64_t i, int64_t head_dim);

// config.json. Of an architecture other than llama, or one with experts, only model_type.
OrderedJson gguf_config(const GgufModel& model);

// tokenizer.json; nullopt without a tokenizer. Throws UnsupportedError for a kind of tokenizer that
// is not handled (naming it and those that are), FormatError for lists that do not fit together.
std::optional<OrderedJson> gguf_tokenizer(const GgufModel& model);
// tokenizer_config.json; nullopt without a tokenizer.
std::optional<OrderedJson> gguf_tokenizer_config(const GgufModel& model);

}  // namespace curvq::io
