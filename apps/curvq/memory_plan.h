// Whether `curvq hessian` fits in memory, and with how many samples a chunk.
#pragma once

#include <string>
#include <vector>

#include "curvq/curvature/memory.h"
#include "curvq/nn/decoder.h"
#include "options.h"

namespace curvq::cli {

struct MemoryPlan {
  int64_t chunk_size = 0;     // samples
  bool keeps_graph = false;   // between products: all samples are one chunk, and it fits
  int64_t program_bytes = 0;  // resident ahead of products: the program, the weights, the data
  int64_t weights_bytes = 0;  // of these, the weights
  int64_t vectors_bytes = 0;  // what estimators hold
  int64_t activations_bytes = 0, graph_bytes = 0;
  int64_t limit_bytes = 0;  // --max-memory; 0: none

  int64_t total_bytes() const {
    return program_bytes + vectors_bytes + activations_bytes + graph_bytes;
  }
  OrderedJson json() const;
  std::string text(bool color) const;
  // Throws ResourceError, which ends in `remedy`, if total_bytes() is above the limit.
  void check(
      const std::string& remedy = "lower --chunk-size or --max-length, or use --checkpoint") const;
};

// Measures small products. The chunk size is that of `problem`, or, where that is all samples and
// --max-memory is given, the largest that fits.
MemoryPlan plan_memory(const Problem& problem, Curvature curvature,
                       const std::vector<std::string>& what, const Options& options);

// Of K-FAC factors that go through a decoder block by block, from its sizes.
MemoryPlan plan_kfac_memory(const DecoderModel& model, const Batch& tokens, const Options& options);

}  // namespace curvq::cli
