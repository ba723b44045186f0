// The differentiable part of a product with one chunk of the data.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "curvq/curvature/curvature_operator.h"

namespace curvq {

class ChunkGraph {
 public:
  virtual ~ChunkGraph() = default;
  // The chunk's part of the product with a vector, given and returned as one tensor a parameter
  // (undefined: zero). retain: there will be another call.
  virtual std::vector<torch::Tensor> product(const std::vector<torch::Tensor>& vector,
                                             bool retain) = 0;
};

// d^2 f_chunk / d theta^2: keeps the gradient with its graph.
std::shared_ptr<ChunkGraph> hessian_graph(const Problem& problem, const Batch& batch);

// 1/M J^T B J, B in the outputs: keeps the outputs with their graph and J^T u with its own, whose
// derivative in u gives J v.
std::shared_ptr<ChunkGraph> output_graph(const Problem& problem, const Batch& batch,
                                         Curvature curvature, int64_t draws,
                                         torch::Generator generator);

}  // namespace curvq
