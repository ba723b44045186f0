// The list of a checkpoint's tensors for people.
#pragma once

#include <vector>

#include "curvq/eval/stored_tensors.h"
#include "curvq/report/table.h"

namespace curvq::cli {

// 8 * stored bytes / elements; 0 for an empty tensor.
double bits_per_weight(const StoredTensor& tensor);

// One row a tensor. With `merge_blocks`, consecutive blocks ("model.layers.3.") that hold the same
// tensors in the same shapes and formats are shown once: "model.layers.{0..29}.mlp.up_proj.weight".
Table tensor_table(const std::vector<StoredTensor>& tensors, bool merge_blocks);

}  // namespace curvq::cli
