#include "curvq/core/parallel.h"

#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

namespace curvq {
namespace {

int available_cores() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const int count = wanted == nullptr ? 0 : std::atoi(wanted);
  if (count > 0) return count;
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int g_num_threads = 0;

}  // namespace

void set_num_threads(int num_threads) {
  g_num_threads = num_threads > 0 ? num_threads : available_cores();
  omp_set_num_threads(g_num_threads);
}

int num_threads() {
  if (g_num_threads == 0) set_num_threads(0);
  return g_num_threads;
}

void parallel_for(int64_t begin, int64_t end, const std::function<void(int64_t)>& fn) {
  std::exception_ptr error;
  std::mutex mutex;
  std::atomic<bool> stop{false};
#pragma omp parallel for schedule(dynamic) num_threads(num_threads()) if (end - begin > 1)
  for (int64_t i = begin; i < end; ++i) {
    if (stop.load(std::memory_order_relaxed)) continue;
    try {
      fn(i);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
      stop = true;
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace curvq
