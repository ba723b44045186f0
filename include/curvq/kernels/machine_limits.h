// What this machine can do at most, measured here and now.
#pragma once

#include <cstdint>

namespace curvq {

struct MachineLimits {
  double read_bytes = 0;  // a second, from main memory, with num_threads() threads
  double float_ops = 0;   // float32 multiplications and additions a second, both counted
  double byte_ops = 0;    // the same of 8-bit integers with 32-bit sums
};

// Measures with the instructions of linear_path(), the best of `rounds` rounds of a few
// hundredths of a second each, in processor time of the threads. Throws ResourceError without 256
// MB of memory.
MachineLimits measure_machine_limits(int rounds = 5);

// Seconds that a product of `m` rows takes at least: the larger of the weight's bytes over the read
// bandwidth and 2 m n k operations over their rate.
double least_seconds(const MachineLimits& limits, double weight_bytes, double ops, bool integer);

}  // namespace curvq
