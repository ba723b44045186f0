#include "curvq/kernels/machine_limits.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "curvq/core/parallel.h"
#include "formats/simd_clones.h"
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

// Adds up words of four streams, which memory serves faster than one; some sums, as one would wait
// for itself.
CURVQ_SIMD_CLONES uint64_t read_all(const uint8_t* data, int64_t bytes) {
  uint64_t sums[32] = {};
  const int64_t stream = bytes / 4;
  for (int64_t at = 0; at + 64 <= stream; at += 64) {
    for (int s = 0; s < 4; ++s) {
      __builtin_prefetch(data + s * stream + at + 2048);
      uint64_t words[8];
      std::memcpy(words, data + s * stream + at, sizeof(words));
      for (int i = 0; i < 8; ++i) sums[8 * s + i] += words[i];
    }
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

int64_t bytes_beyond_caches() {
  constexpr int64_t kLeast = int64_t{256} << 20, kMost = int64_t{1} << 30;
  return std::clamp<int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), kLeast, kMost);
}

MachineLimits measure_machine_limits(int rounds) {
  const internal::PanelPath& path = *internal::select_gemm_path().panels;
  const internal::MatrixUnit* matrix = internal::select_gemm_path().matrix;
  constexpr int64_t kRepeats = 1000000;
  const internal::PanelBytes memory(bytes_beyond_caches());
  const int64_t share = memory.size() / num_threads() / 256 * 256;
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
    if (matrix == nullptr) continue;
    limits.bf16_ops =
        std::max(limits.bf16_ops,
                 rate_of([&](int64_t) { return static_cast<double>(matrix->peak(kRepeats)); }));
  }
  return limits;
}

double least_seconds(const MachineLimits& limits, double weight_bytes, double ops,
                     InputRounding rounding) {
  double rate = limits.float_ops;
  if (rounding == InputRounding::kBF16 && limits.bf16_ops > 0) rate = limits.bf16_ops;
  if (rounding == InputRounding::kA8) rate = limits.byte_ops;
  if (rounding == InputRounding::kA15) rate = limits.byte_ops / 2;
  return std::max(weight_bytes / limits.read_bytes, ops / rate);
}

}  // namespace curvq
