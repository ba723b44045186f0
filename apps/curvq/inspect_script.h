// The part of `curvq inspect` that is about TorchScript files.
#pragma once

#include <string>

#include "curvq/eval/stored_tensors.h"
#include "curvq/io/json.h"

namespace curvq::cli {

// The signature of forward and the layers in it; `tensors` must be of a TorchScript file.
OrderedJson script_json(const StoredTensors& tensors);
std::string script_text(const StoredTensors& tensors);
std::string script_layer_table(const StoredTensors& tensors, bool color);

}  // namespace curvq::cli
