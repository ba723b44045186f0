// Results of estimators as JSON.
#pragma once

#include <torch/torch.h>

#include "curvq/curvature/eigen.h"
#include "curvq/curvature/statistics.h"
#include "curvq/io/json.h"

namespace curvq::cli {

OrderedJson to_json(const Estimate& estimate);
OrderedJson to_json(const Eigenpair& pair, int64_t iterations);
// A vector, or rows of a matrix.
OrderedJson to_json(const torch::Tensor& values);
// Means of the first 2, 3, ... of independent samples [probes], with half their 95 % intervals.
OrderedJson running_means(const torch::Tensor& samples, const char* of);

}  // namespace curvq::cli
