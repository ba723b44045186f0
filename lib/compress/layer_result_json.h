// A layer's result as JSON, for a run's state: nothing is lost on the way there and back.
#pragma once

#include "curvq/compress/prune_model.h"
#include "curvq/compress/quantize.h"
#include "curvq/io/json.h"

namespace curvq::internal {

OrderedJson layer_result_json(const LayerResult& result);
LayerResult layer_result(const OrderedJson& json);
OrderedJson pruned_layer_json(const PrunedLayer& result);
PrunedLayer pruned_layer(const OrderedJson& json);

}  // namespace curvq::internal
