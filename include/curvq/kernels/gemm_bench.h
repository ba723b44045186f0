// Checks and times linear() on random weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/kernels/linear.h"
#include "curvq/kernels/machine_limits.h"

namespace curvq {

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
};

struct GemmBenchOptions {
  std::vector<GemmShape> shapes = {{1, 4096, 4096}, {16, 4096, 4096}, {128, 4096, 4096}};
  std::vector<Scheme> schemes = {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4()};
  std::vector<InputRounding> roundings = {InputRounding::kNone, InputRounding::kBF16,
                                          InputRounding::kA15, InputRounding::kA8};
  int rounds = 9;  // of each row, interleaved; the fastest counts
  // With few rows weights must come from memory: distinct copies of so many bytes together.
  int64_t rotated_bytes = bytes_beyond_caches();
};

struct GemmBenchRow {
  std::string kernel;  // an input_rounding_name()
  std::string format;
  GemmShape shape;
  int64_t weight_bytes = 0;
  double seconds = 0;          // processor time of all threads over their number; input rounded too
  double prepack_seconds = 0;  // wall time
  double intensity = 0;        // operations a byte of weight
  double least_seconds = 0;    // by the machine's limits
  // Largest |out - exact| / sum_k |x_k w_k| over the outputs that were checked.
  double max_error = 0;

  double gflops() const;
  double weight_gbps() const;
  double limit_ratio() const { return least_seconds / seconds; }
};

struct GemmBench {
  MachineLimits limits;
  std::vector<GemmBenchRow> rows;
};

// "exact", "bf16", "a15", "a8", "nvfp4", "mxfp4".
std::string input_rounding_name(InputRounding rounding);

// Skips roundings that a scheme has not. Throws UsageError for sizes below 1 or groups that do not
// divide k, and NumericalError, before anything is timed, if a product is further from that in
// double precision than linear.h promises.
GemmBench bench_gemm(const GemmBenchOptions& options);

}  // namespace curvq
