// The compressed-tensors checkpoint layout: quantized linear layers as several tensors each, and a
// `quantization_config` in config.json.
//
//   layout (format)        tensors of layer NAME
//   nvfp4-pack-quantized   weight_packed U8 [N,K/2], weight_scale F8_E4M3 [N,K/16],
//                          weight_global_scale F32 [1] (divides)
//   mxfp4-pack-quantized   weight_packed U8 [N,K/2], weight_scale U8 [N,K/32]
//   pack-quantized         weight_packed I32 [N,ceil(K bits/32)], weight_scale [N,K/g] in the scale
//                          dtype, weight_shape I64 [2], weight_zero_point I32 [ceil(N bits/32),K/g]
//   float-quantized        weight F8_E4M3 [N,K], weight_scale [N,1]
//   int-quantized          weight I8 [N,K], weight_scale [N,1]; of layers with int8 inputs
//
// and of layers whose inputs have a stored scale: input_global_scale F32 [1] (divides; nvfp4) or
// input_scale [1] in the scale dtype (fp8-tensor).
//
// Read, too, though not written: naive-quantized (weight I8 or F8_E4M3 [N,K]) and int-quantized of
// other layers, weight_zero_point I8, one scale for all rows (weight_scale [1]), zero points that
// are not packed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "curvq/formats/quantized_matrix.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/json.h"

namespace curvq {

// "nvfp4-pack-quantized", ... Throws UnsupportedError for a scheme that has no layout (fp8 with
// groups).
std::string compressed_tensors_format(const Scheme& scheme);

// The tensors that layer `name` (without ".weight") of shape [rows, cols] becomes. Throws
// UsageError if the group size does not divide cols.
std::vector<TensorInfo> compressed_tensors_infos(const std::string& name, const Scheme& scheme,
                                                 int64_t rows, int64_t cols);
std::vector<TensorData> compressed_tensors_pack(const std::string& name,
                                                const QuantizedMatrix& matrix);

// One `config_groups` entry: a scheme and the modules it targets.
struct QuantizationGroup {
  Scheme scheme;
  std::vector<std::string> targets;  // "Linear", full module names, or "re:..."
};

struct QuantizationConfig {
  std::vector<QuantizationGroup> groups;
  std::vector<std::string> ignore;  // module names or "re:..."; what keeps a plain weight
  // Whether the model came like this: quant_method "mxfp4", of experts (curvq/io/expert_tensors.h).
  bool original = false;

  // Scheme of linear layer `name`; nullopt if it is ignored or not targeted. Of several groups that
  // target it, one with its name decides, then one with a pattern, then one with "Linear"; the
  // first of equals. Patterns must match from the start of the name on, as Python's re.match does.
  std::optional<Scheme> scheme_of(const std::string& name) const;
};

// The JSON exactly as compressed-tensors 0.20.1 writes it; groups of different formats give
// "mixed-precision".
OrderedJson to_json(const QuantizationConfig& config);
// Also reads the "mxfp4" of gpt_oss. Throws UnsupportedError for another quant_method or settings
// that curvq does not read (naming the key and its value), FormatError for contradictions.
// `json` is what config.json holds under "quantization_config".
QuantizationConfig parse_quantization_config(const Json& json, const std::string& origin);

// Reads layer `name` back. Throws FormatError naming file, tensor, and both shapes or dtypes if
// tensors are missing or do not fit the scheme, scales are not finite, or codes or zero points are
// none of the scheme's. The scale dtype is taken from the file.
QuantizedMatrix compressed_tensors_unpack(const Checkpoint& checkpoint, const std::string& name,
                                          Scheme scheme);

}  // namespace curvq
