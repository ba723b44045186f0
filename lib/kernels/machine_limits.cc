#include "curvq/kernels/machine_limits.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "curvq/core/parallel.h"
#include "kernels/gemm_path.h"
#include "kernels/prepacked_weight.h"

namespace curvq {
namespace {

// Processor time of this thread: what others do on a shared machine does not count.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Amount a second that all threads do together; work(t) returns the amount of thread t.
double rate_of(const std::function<double(int64_t)>& work) {
  std::vector<double> rates(num_threads());
  parallel_for(0, num_threads(), [&](int64_t t) {
    const double begin = thread_seconds(), amount = work(t);
    rates[t] = amount / (thread_seconds() - begin);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

// Adds up words; eight sums, as one would wait for itself.
uint64_t read_all(const uint8_t* data, int64_t bytes) {
  uint64_t sums[8] = {};
  for (int64_t at = 0; at + 64 <= bytes; at += 64) {
    __builtin_prefetch(data + at + 2048);
    uint64_t words[8];
    std::memcpy(words, data + at, sizeof(words));
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

MachineLimits measure_machine_limits(int rounds) {
  const internal::PanelPath& path = *internal::select_gemm_path().panels;
  constexpr int64_t kBytes = 256 << 20, kRepeats = 1000000;  // more than caches hold
  const internal::PanelBytes memory(kBytes);
  const int64_t share = kBytes / num_threads() / 64 * 64;
  std::atomic<uint64_t> sum{0};  // keeps the reading alive
  MachineLimits limits;
  for (int round = 0; round < rounds; ++round) {
    const double read_bytes = rate_of([&](int64_t t) {
      sum += read_all(memory.data() + t * share, share);
      return static_cast<double>(share);
    });
    limits.read_bytes = std::max(limits.read_bytes, read_bytes);
    limits.float_ops =
        std::max(limits.float_ops,
                 rate_of([&](int64_t) { return static_cast<double>(path.peak_floats(kRepeats)); }));
    limits.byte_ops =
        std::max(limits.byte_ops,
                 rate_of([&](int64_t) { return static_cast<double>(path.peak_bytes(kRepeats)); }));
  }
  return limits;
}

double least_seconds(const MachineLimits& limits, double weight_bytes, double ops, bool integer) {
  return std::max(weight_bytes / limits.read_bytes,
                  ops / (integer ? limits.byte_ops : limits.float_ops));
}

}  // namespace curvq
