// NVFP4 in the layout of NVIDIA's ModelOpt: weight U8 [N, K/2], weight_scale F8_E4M3 [N, K/16],
// weight_scale_2 F32 scalar, which multiplies (compressed-tensors stores its reciprocal); of layers
// with NVFP4 inputs also input_scale, alike.
#pragma once

#include <cstring>

#include "io/model_layers.h"

namespace curvq::io {

// Throws UnsupportedError for a scheme other than NVFP4.
void check_modelopt(const ModelLayer& layer);
std::vector<TensorInfo> modelopt_infos(const ModelLayer& layer);
std::vector<TensorData> modelopt_pack(const ModelLayer& layer, const QuantizedMatrix& matrix);
// What config.json holds as quantization_config; `inputs`: of all layers; `ignore`: modules with
// plain weights.
OrderedJson modelopt_config(InputFormat inputs, const std::vector<std::string>& ignore);

}  // namespace curvq::io
