#include "bench_rounds.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "curvq/core/error.h"
#include "curvq/core/progress.h"

namespace curvq::cli {
namespace {

double time_of(const std::function<void()>& work, int64_t times) {
  const double begin = process_seconds();
  for (int64_t i = 0; i < times; ++i) work();
  return (process_seconds() - begin) / static_cast<double>(times);
}

void wait_for_turn() {
  std::string line;
  if (!std::getline(std::cin, line))
    throw UsageError("--wait: standard input ended before the last round");
}

}  // namespace

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void add_round_options(Options& options) {
  options
      .add_integer("rounds", "N",
                   "measurements of each, interleaved; the median counts (hvp: 20 or more)", 1,
                   10000, 21)
      .add_flag("wait",
                "wait for a line on standard input before each round, so that another program can "
                "measure in turns, and say `round` on standard error behind it");
}

void measure_rounds(std::vector<Contender>& contenders, const char* longer, const Options& options,
                    const std::string& label) {
  double once = 0;
  for (Contender& contender : contenders) {
    const double took = time_of(contender.work, 1);  // warms up
    if (std::string(contender.key) == longer) once = took;
  }
  constexpr double kLongEnough = 0.01;  // seconds; the clock ticks in microseconds at worst
  const int64_t times = std::max<int64_t>(1, std::llround(kLongEnough / std::max(1e-6, once)));
  const int64_t rounds = options.integer("rounds");
  const bool waits = options.flag("wait");
  Progress progress(label, rounds);
  for (int64_t round = 0; round < rounds; ++round) {
    if (waits) wait_for_turn();
    for (Contender& contender : contenders)
      contender.seconds.push_back(time_of(contender.work, times));
    if (waits) std::cerr << "round" << std::endl;
    progress.advance();
  }
}

}  // namespace curvq::cli
