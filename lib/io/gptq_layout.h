// Integers in the layout of AutoGPTQ and GPTQModel: qweight I32 [K bits/32, N] (consecutive inputs
// in a word, the first lowest), qzeros I32 [G, N bits/32], scales F16 [G, N], g_idx I32 [K].
#pragma once

#include "io/model_layers.h"

namespace curvq::io {

// Throws UnsupportedError for a scheme or shape that the layout cannot hold.
void check_gptq(const ModelLayer& layer);
std::vector<TensorInfo> gptq_infos(const ModelLayer& layer);
// v2 stores zero points as they are, v1 minus one. Throws UnsupportedError for a scale that is no
// float16 and, in v1, for a zero point of 0.
std::vector<TensorData> gptq_pack(const ModelLayer& layer, const QuantizedMatrix& matrix, bool v2);
// What config.json holds as quantization_config, and quantize_config.json.
OrderedJson gptq_config(const Scheme& scheme, bool v2);

}  // namespace curvq::io
