// Things measured side by side, in CPU seconds of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "options.h"

namespace curvq::cli {

double process_seconds();
double median_of(std::vector<double> values);

// One thing to measure and its CPU seconds, one a round.
struct Contender {
  const char* key;
  const char* title;
  std::function<void()> work;
  std::vector<double> seconds = {};

  double median() const { return median_of(seconds); }
};

// Declares --rounds and --wait.
void add_round_options(Options& options);

// Runs each contender once, then --rounds rounds of all of them one after the other, each as many
// times a round as `longer`, one of them, needs to last longer than the clock's resolution.
void measure_rounds(std::vector<Contender>& contenders, const char* longer, const Options& options,
                    const std::string& label);

}  // namespace curvq::cli
