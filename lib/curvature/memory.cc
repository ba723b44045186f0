#include "curvq/curvature/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/memory.h"

namespace curvq {

// The allocator tells a thread's profiler of each block it gives and takes back.
struct MemoryWatch::Impl {
  struct Reporter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t change, size_t, size_t, c10::Device) override {
      live += change;
      if (change > 0) history.push_back(live);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t live = 0;
    std::vector<int64_t> history;
  };

  std::shared_ptr<Reporter> reporter = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, reporter};
};

MemoryWatch::MemoryWatch() : impl_(std::make_unique<Impl>()) {}
MemoryWatch::~MemoryWatch() = default;

int64_t MemoryWatch::live_bytes() const { return impl_->reporter->live; }

const std::vector<int64_t>& MemoryWatch::history() const { return impl_->reporter->history; }

int64_t MemoryWatch::peak_bytes() const {
  return history().empty() ? 0 : *std::max_element(history().begin(), history().end());
}

namespace {

using Line = MemoryModel::Line;

int64_t forward_bytes(const Problem& problem) {
  const MemoryWatch watch;
  torch::AutoGradMode enable(true);
  const torch::Tensor outputs = problem.outputs(problem.chunk(0));
  return watch.live_bytes();
}

std::vector<int64_t> product_history(const Problem& problem, Curvature curvature,
                                     const CurvatureOptions& options) {
  const torch::Tensor vector = torch::ones({1, problem.dimension()}, problem.options());
  const MemoryWatch watch;
  CurvatureOperator op(problem, curvature, options);
  op.apply(vector);
  return watch.history();
}

// Through (few, low) and (few + 1, high).
Line line_through(int64_t few, int64_t low, int64_t high) {
  const auto slope = static_cast<double>(high - low);
  return {static_cast<double>(low) - slope * static_cast<double>(few), slope};
}

// Those that are the highest for some number of samples, and maybe a few more.
std::vector<Line> highest(std::vector<Line> lines) {
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return a.fixed != b.fixed ? a.fixed > b.fixed : a.per_sample > b.per_sample;
  });
  std::vector<Line> kept;
  for (const Line& line : lines) {
    if (kept.empty() || line.per_sample > kept.back().per_sample) kept.push_back(line);
  }
  return kept;
}

}  // namespace

int64_t MemoryModel::activations_bytes(int64_t samples) const {
  return std::llround(activations.at(samples));
}

int64_t MemoryModel::graph_bytes(int64_t samples) const {
  return total_bytes(samples) - weights_bytes - vectors_bytes - activations_bytes(samples);
}

int64_t MemoryModel::total_bytes(int64_t samples) const {
  double peak = 0;
  for (const Line& moment : moments) peak = std::max(peak, moment.at(samples));
  return weights_bytes + vectors_bytes / 2 + std::llround(peak);
}

int64_t MemoryModel::largest_chunk(int64_t bytes, int64_t limit) const {
  if (total_bytes(1) > bytes) {
    throw ResourceError(
        format("one sample needs %lld bytes, more than the %lld allowed; shorten the "
               "samples, choose fewer parameters, or compute blocks again",
               static_cast<long long>(total_bytes(1)), static_cast<long long>(bytes)));
  }
  int64_t fits = 1, too_many = limit + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (total_bytes(middle) <= bytes ? fits : too_many) = middle;
  }
  return fits;
}

MemoryModel measure_memory(const Problem& problem, Curvature curvature,
                           const CurvatureOptions& options) {
  MemoryModel model;
  for (const NamedTensor& parameter : problem.model().parameters)
    model.weights_bytes += static_cast<int64_t>(parameter.value.nbytes());
  const auto element = static_cast<int64_t>(problem.options().dtype().itemsize());
  model.vectors_bytes = 2 * problem.dimension() * element;  // the second is in the history

  const int64_t few = std::clamp<int64_t>(problem.num_samples() - 1, 1, 2);
  const Problem small = problem.first_samples(few);
  const Problem large = problem.first_samples(std::min(few + 1, problem.num_samples()));
  model.activations = line_through(few, forward_bytes(small), forward_bytes(large));
  const std::vector<int64_t> low = product_history(small, curvature, options);
  return_freed_memory();
  reset_peak_resident();
  model.resident_bytes = peak_resident_bytes();
  const std::vector<int64_t> high = product_history(large, curvature, options);
  const int64_t allocated = model.vectors_bytes / 2 + *std::max_element(high.begin(), high.end());
  const int64_t became = peak_resident_bytes() - model.resident_bytes;
  model.gaps = std::max(0.0, static_cast<double>(became) / static_cast<double>(allocated) - 1);
  if (low.size() == high.size()) {
    for (size_t i = 0; i < low.size(); ++i)
      model.moments.push_back(line_through(few, low[i], high[i]));
  } else {  // kernels chosen by size: the peaks alone
    model.moments.push_back(line_through(few, *std::max_element(low.begin(), low.end()),
                                         *std::max_element(high.begin(), high.end())));
  }
  model.moments = highest(std::move(model.moments));
  return model;
}

}  // namespace curvq
