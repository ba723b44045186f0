// Loops over threads. Results must not depend on the number of threads: every iteration writes
// its own output, and reductions are done by the caller in a fixed order.
#pragma once

#include <cstdint>
#include <functional>

namespace curvq {

// Threads used by parallel_for and by BLAS; 0 means OMP_NUM_THREADS, or, where that is not set, all
// cores this process may run on.
void set_num_threads(int num_threads);
int num_threads();

// Calls fn(i) for begin <= i < end, spread over the threads in any order. The first exception
// is rethrown once all threads have stopped.
void parallel_for(int64_t begin, int64_t end, const std::function<void(int64_t)>& fn);

}  // namespace curvq
