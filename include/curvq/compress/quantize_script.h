// Quantizing a TorchScript file.
#pragma once

#include <torch/torch.h>

#include <string>

#include "curvq/compress/quantize.h"

namespace curvq {

// Rounds the layers of ScriptModel::layers() that have no obstacle (a convolution's weight as the
// matrix [out, in * kernel]) and keeps everything else. Writes to options.out
//   model.pt           the TorchScript file with the rounded weights in the dtypes that they had
//   model.safetensors  the codes and scales of these layers in the compressed-tensors layout, and
//                      all other parameters and buffers
//   config.json        quantization_config, and the shapes of convolutions' weights
// or, if options.out is named as a TorchScript file, only that file.
//   x  [n, ...]  what forward() takes; Hessians are 2/N sum r r^T over the rows r of a layer's
//                inputs (a convolution's unfolded ones) in calls that any control flow makes. With
//                Capture::kSequential each layer's inputs come from a pass with the layers before
//                it, in the order of the first call, already rounded. Undefined: none; then
//                `stats` or Method::kRtn is needed.
//   stats  see quantize_model(); of inputs of the original module
// Layers that no x comes to are rounded to nearest, with a note. Throws UsageError for options that
// need a model directory, FormatError if there is no layer to round, NumericalError for weights, x
// or inputs of layers that are not finite, and what ScriptModel throws.
QuantizeReport quantize_script(const std::string& file, const torch::Tensor& x,
                               const QuantizeOptions& options, const ReportWriter& write_report,
                               const std::string& stats = "");

}  // namespace curvq
