// How an operator is made up of blocks: Frobenius norms between stretches of the parameter vector.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

struct BlockNorms {
  std::vector<Segment> segments;
  torch::Tensor norm;            // [k, k] float64 ||H_ij||_F, symmetric
  torch::Tensor standard_error;  // [k, k] float64; zero when exact
  int64_t products = 0;

  // sqrt(sum_{i != j} ||H_ij||_F^2 / sum_i ||H_ii||_F^2): 0 for a block-diagonal operator. The
  // error by the delta method, blocks taken as independent. NaN if the diagonal blocks are zero.
  Estimate off_diagonal_ratio() const;
};

// Exact norms of the blocks between `segments` (any stretches; empty: those of the operator): one
// product an entry of a segment, without the whole matrix in memory.
BlockNorms exact_block_norms(LinearOperator& op, std::vector<Segment> segments = {},
                             int64_t chunk = 64);

// ||H_ij||_F^2 = E |(H z_j)_i|^2 with z_j zero outside segment j: `probes` (2 or more) products a
// segment. H_ij and H_ji are two estimates of one norm and are averaged. Errors are those of the
// squares, divided by twice the norm.
BlockNorms estimated_block_norms(LinearOperator& op, std::vector<Segment> segments, int64_t probes,
                                 ProbeKind probe, torch::Generator generator);

// The rows of a weight [rows, in] stored row-major in `weight`: one segment an output neuron.
// Throws UsageError if rows does not divide the segment's size.
std::vector<Segment> rows_as_segments(const Segment& weight, int64_t rows);

}  // namespace curvq
