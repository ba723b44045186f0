// Quantized layers as blocks of a GGUF, and back; codes and scales are kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "curvq/formats/ggml_type.h"
#include "curvq/formats/quantized_matrix.h"
#include "curvq/io/gguf.h"

namespace curvq::io {

// The type whose blocks hold the codes of `scheme` in rows of `cols`: Q4_0, Q8_0, MXFP4, NVFP4.
// Throws UnsupportedError naming `layer` and the reason where there is none.
GgmlType ggml_type_of(const Scheme& scheme, int64_t cols, const std::string& layer);

// Blocks of `matrix`. Rows of each head's two halves alternate if half_head is not 0. Throws
// UnsupportedError where a scale is no float16 (Q4_0, Q8_0), naming it.
std::vector<std::byte> pack_ggml_blocks(const QuantizedMatrix& matrix, int64_t half_head,
                                        const std::string& layer);

// The scheme of blocks whose values a QuantizedMatrix can hold; nullopt for other types.
std::optional<Scheme> scheme_of(GgmlType type);

// The inverse of the above, of a tensor of such a type; tensor_scale: NVFP4's own. Throws
// FormatError for scales that are not finite.
QuantizedMatrix unpack_ggml_blocks(const GgufTensor& tensor, int64_t half_head, float tensor_scale);

}  // namespace curvq::io
