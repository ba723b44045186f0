// A model from one layout into another, without rounding its codes again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "curvq/formats/dtype.h"

namespace curvq {

// How quantized layers are stored.
//   kPlain              as floating-point weights
//   kCompressedTensors  see compressed_tensors.h
//   kModelOpt           NVFP4 of NVIDIA's ModelOpt: weight, weight_scale, weight_scale_2
//   (multiplies) kGptq, kGptqV2      qweight, qzeros, scales, g_idx; the first stores zero points
//   minus one kGguf               blocks of llama.cpp (Q4_0, Q8_0, MXFP4, NVFP4) in one file
enum class Layout { kPlain, kCompressedTensors, kModelOpt, kGptq, kGptqV2, kGguf };

// plain, compressed-tensors, modelopt, gptq, gptq_v2, gguf. Throws UsageError listing them.
Layout parse_layout(std::string_view name);
std::string_view layout_name(Layout layout);

struct ConvertOptions {
  std::string out;         // a directory; for kGguf a file
  bool overwrite = false;  // an earlier result may be replaced
  Layout layout = Layout::kPlain;
  // F32, F16 or BF16: what plain weights are rounded to; codes are kept. Not set: nothing is
  // rounded, and what is decoded becomes float32.
  std::optional<DType> dtype;
  int64_t max_shard_bytes = int64_t{5} << 30;
};

struct ConvertReport {
  int64_t num_tensors = 0;                     // of the output
  int64_t num_layers = 0;                      // quantized ones, kept as codes
  int64_t num_decoded = 0;                     // tensors that were codes and are values now
  int64_t source_bytes = 0, stored_bytes = 0;  // of tensors
  // Layers whose tensor scale is the reciprocal of the source's, and the largest relative
  // difference that its rounding makes.
  int64_t num_reciprocals = 0;
  double reciprocal_error = 0;
};

// Writes `model` (a model directory in any of the layouts, or a GGUF) in another layout. Codes and
// block scales are copied; where the two layouts keep reciprocal tensor scales, that one float32 is
// rounded (see the report).
//   report_text  what conversion_report.json in an output directory holds
// Throws UsageError for options that do not fit, UnsupportedError naming layer and reason where the
// target cannot hold the values, NumericalError for a weight that overflows dtype, and what reading
// and writing throw.
ConvertReport convert_model(const std::string& model, const ConvertOptions& options,
                            const std::function<std::string(const ConvertReport&)>& report_text);

}  // namespace curvq
