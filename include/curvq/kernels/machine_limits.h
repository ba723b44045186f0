// What this machine can do at most, measured here and now.
#pragma once

#include <cstdint>

#include "curvq/kernels/linear.h"

namespace curvq {

struct MachineLimits {
  double read_bytes = 0;  // a second, from main memory, with num_threads() threads
  double float_ops = 0;   // float32 multiplications and additions a second, both counted
  double byte_ops = 0;    // the same of 8-bit integers with 32-bit sums
  double bf16_ops = 0;    // the same of bfloat16 on a matrix unit; 0 without one
};

// Twice the last cache, 256 MB to 1 GB: what is read from end to end comes from main memory.
int64_t bytes_beyond_caches();

// Measures with the instructions of linear_path(), the best of `rounds` rounds of a few
// hundredths of a second each, in processor time of the threads. Throws ResourceError without
// bytes_beyond_caches() of memory.
MachineLimits measure_machine_limits(int rounds = 5);

// Seconds that a product of 2 m n k = `ops` operations takes at least with such inputs: the larger
// of the weight's bytes over the read bandwidth and the operations (kA15: twice) over their rate.
double least_seconds(const MachineLimits& limits, double weight_bytes, double ops,
                     InputRounding rounding);

}  // namespace curvq
