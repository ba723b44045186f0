// Memory that curvature needs, measured on few samples and extrapolated.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "curvq/curvature/curvature_operator.h"

namespace curvq {

// Watches what LibTorch's CPU allocator hands out to this thread (backward passes run on it too)
// while the object lives. Memory from before does not count.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  int64_t live_bytes() const;  // now
  int64_t peak_bytes() const;  // the most at any time
  // live_bytes() behind each allocation.
  const std::vector<int64_t>& history() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Peak memory of one product with a CurvatureOperator, in bytes:
//   weights      all parameters of the model
//   vectors      the vector and its product
//   activations  what the forward pass of one chunk keeps
//   graph        everything else at the peak: gradient, its graph, temporaries
// Not counted: the program itself, the data, and what an estimator holds.
struct MemoryModel {
  // fixed + per_sample * samples.
  struct Line {
    double fixed = 0, per_sample = 0;
    double at(int64_t samples) const { return fixed + per_sample * static_cast<double>(samples); }
  };

  int64_t weights_bytes = 0, vectors_bytes = 0;
  Line activations;
  // What is allocated at moments of the product; the peak is the highest of them.
  std::vector<Line> moments;
  // Resident ahead of the larger product (program, weights, data; 0 where the system does not
  // tell), and what became resident with it beyond what was allocated, as a part of that.
  int64_t resident_bytes = 0;
  double gaps = 0;

  int64_t activations_bytes(int64_t samples) const;
  int64_t graph_bytes(int64_t samples) const;
  int64_t total_bytes(int64_t samples) const;
  // The most samples, up to `limit`, whose total stays within `bytes`. Throws ResourceError with
  // the numbers if one sample does not.
  int64_t largest_chunk(int64_t bytes, int64_t limit) const;
};

// Multiplies with one vector twice, on the first two samples and on the first three (fewer if there
// are fewer). The same allocations come in the same order, each affine in the samples, so that the
// peak of larger chunks is known even where it falls on another moment. It is that of a chunk whose
// graph is kept if options.kept_graphs is not 0. Gives freed memory back and resets the process's
// peak_resident_bytes().
MemoryModel measure_memory(const Problem& problem, Curvature curvature,
                           const CurvatureOptions& options = {});

}  // namespace curvq
