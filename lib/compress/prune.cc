#include "curvq/compress/prune.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "compress/fisher_mask.h"
#include "compress/obs_mask.h"
#include "compress/saliency_mask.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq {
namespace {

constexpr std::pair<const char*, PruneMethod> kMethods[] = {
    {"magnitude", PruneMethod::kMagnitude},
    {"wanda", PruneMethod::kWanda},
    {"obd", PruneMethod::kObd},
    {"obs", PruneMethod::kObs},
    {"woodfisher", PruneMethod::kWoodFisher}};

void check(const PruneProblem& problem, const PruneOptions& options) {
  const auto fail = [&](const std::string& why) { return UsageError(problem.name + ": " + why); };
  options.pattern.require_fit(problem.name, problem.rows, problem.cols);
  const bool diagonal = options.method == PruneMethod::kObd && problem.diagonal != nullptr;
  if (problem.hessian == nullptr && options.uses_hessian() && (!diagonal || options.sweeps > 0)) {
    throw fail((options.sweeps > 0 ? "a sweep" : method_name(options.method)) +
               " needs this layer's hessian or inputs");
  }
  if (options.method == PruneMethod::kWoodFisher && problem.num_gradients < 1)
    throw fail("woodfisher needs gradients of samples");
  for (int64_t i = 0; i < problem.rows * problem.cols; ++i) {
    for (const float* values : {problem.weight, diagonal ? problem.diagonal : problem.weight}) {
      if (std::isfinite(values[i])) continue;
      throw NumericalError(format(
          "%s: the %s is not finite at row %lld, column %lld", problem.name.c_str(),
          values == problem.weight ? "weight" : "diagonal",
          static_cast<long long>(i / problem.cols), static_cast<long long>(i % problem.cols)));
    }
  }
  const int64_t size = problem.rows * problem.cols;
  for (int64_t i = 0; i < problem.num_gradients * size; ++i) {
    if (std::isfinite(problem.gradients[i])) continue;
    throw NumericalError(format("%s: gradient %lld is not finite at row %lld, column %lld",
                                problem.name.c_str(), static_cast<long long>(i / size),
                                static_cast<long long>(i % size / problem.cols),
                                static_cast<long long>(i % problem.cols)));
  }
  if (problem.hessian != nullptr) check_hessian(problem.hessian, problem.cols, problem.name);
}

// How much the loss is thought to rise without each weight, up to a common factor.
std::vector<float> saliencies(const PruneProblem& problem, PruneMethod method) {
  std::vector<float> out(problem.rows * problem.cols);
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const int64_t column = i % problem.cols;
    float curvature = 1;
    if (method == PruneMethod::kObd && problem.diagonal != nullptr) {
      curvature = problem.diagonal[i];
    } else if (method != PruneMethod::kMagnitude) {
      curvature = problem.hessian[column * problem.cols + column];
    }
    out[i] = problem.weight[i] * problem.weight[i] * curvature;
  }
  return out;
}

}  // namespace

SparsityPattern SparsityPattern::parse(const std::string& text) {
  SparsityPattern pattern;
  const char* end = text.data() + text.size();
  const auto keep = std::from_chars(text.data(), end, pattern.keep);
  bool good = keep.ec == std::errc() && keep.ptr != end && *keep.ptr == ':';
  if (good) {
    const auto group = std::from_chars(keep.ptr + 1, end, pattern.group);
    good = group.ec == std::errc() && group.ptr == end;
  }
  if (!good || pattern.keep < 1 || pattern.group <= pattern.keep || pattern.group > 64) {
    throw UsageError("pattern '" + text +
                     "' is not N:M, N of M weights that stay, 0 < N < M <= 64; for instance 2:4");
  }
  pattern.sparsity = pattern.share();
  return pattern;
}

double SparsityPattern::share() const {
  return structured() ? 1 - static_cast<double>(keep) / static_cast<double>(group) : sparsity;
}

std::string SparsityPattern::describe() const {
  if (structured())
    return format("%lld:%lld", static_cast<long long>(keep), static_cast<long long>(group));
  return format("%.4g %%", 100 * sparsity);
}

void SparsityPattern::validate() const {
  if (!(sparsity >= 0 && sparsity < 1))
    throw UsageError(format("sparsity is %g, it must be 0 or more and below 1", sparsity));
  if (group != 0 && (keep < 1 || keep >= group || group > 64)) {
    throw UsageError(format("the pattern is %s, it must have 0 < N < M <= 64", describe().c_str()));
  }
}

void SparsityPattern::require_fit(const std::string& layer, int64_t rows, int64_t cols) const {
  const int64_t all = rows * cols;
  if (!structured() && all > 0 && std::llround(sparsity * static_cast<double>(all)) == all) {
    throw UsageError(format("%s: a sparsity of %g leaves none of its %lld weights; lower it",
                            layer.c_str(), sparsity, static_cast<long long>(all)));
  }
  if (!structured() || cols % group == 0) return;
  throw UsageError(
      format("%s: its %lld inputs are no multiple of %lld, which %s needs; skip it with --ignore",
             layer.c_str(), static_cast<long long>(cols), static_cast<long long>(group),
             describe().c_str()));
}

std::string method_name(PruneMethod method) {
  for (const auto& [name, value] : kMethods) {
    if (value == method) return name;
  }
  throw std::logic_error("a pruning method without a name");
}

PruneMethod parse_prune_method(const std::string& name) {
  for (const auto& [known, method] : kMethods) {
    if (name == known) return method;
  }
  throw UsageError("there is no pruning method '" + name +
                   "'; there are magnitude, wanda, obd, obs and woodfisher");
}

bool PruneOptions::uses_hessian() const {
  const bool none = method == PruneMethod::kMagnitude || method == PruneMethod::kWoodFisher;
  return !none || sweeps > 0;
}

void PruneOptions::validate() const {
  DampingOptions::validate();
  pattern.validate();
  if (block_size < 1) {
    throw UsageError(
        format("block_size is %lld, it must be 1 or more", static_cast<long long>(block_size)));
  }
  if (sweeps < 0) throw UsageError(format("sweeps is %d, it must be 0 or more", sweeps));
}

PruneResult prune(const PruneProblem& problem, const PruneOptions& options) {
  options.validate();
  check(problem, options);
  const int64_t rows = problem.rows, cols = problem.cols;
  PruneResult result;
  PruneMethod method = options.method;
  if (problem.hessian != nullptr) {
    for (int64_t j = 0; j < cols; ++j) result.dead_inputs += problem.hessian[j * cols + j] == 0;
    result.all_dead = result.dead_inputs == cols;
    const bool knows_more = method == PruneMethod::kWoodFisher ||
                            (method == PruneMethod::kObd && problem.diagonal != nullptr);
    if (result.all_dead && !knows_more) method = PruneMethod::kMagnitude;
  }
  PreparedHessian prepared;
  if (method == PruneMethod::kObs || (options.sweeps > 0 && !result.all_dead)) {
    prepared = prepare_hessian(problem.hessian, cols, options, ActOrder::kNone, problem.name);
    result.damping = prepared.damping;
    result.raised_because = prepared.raised_because;
  }
  if (method == PruneMethod::kObs) {
    result.matrix = internal::prune_by_elimination(problem, prepared.upper, options.pattern,
                                                   options.block_size);
  } else if (method == PruneMethod::kWoodFisher) {
    result.damping = options.damping;
    result.matrix = internal::prune_by_fisher_blocks(problem, options);
  } else {
    result.matrix = {rows, cols, std::vector<float>(problem.weight, problem.weight + rows * cols),
                     internal::mask_of_largest(saliencies(problem, method), rows, cols,
                                               options.pattern, method == PruneMethod::kWanda)};
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (!result.matrix.mask[i]) result.matrix.weight[i] = 0;
    }
  }
  if (options.sweeps > 0 && !result.all_dead) {
    // Where damping had to be raised, H says more than its tokens know, or is no covariance.
    const std::vector<float> damped = prepared.raised_because.empty()
                                          ? std::vector<float>()
                                          : damped_hessian(problem.hessian, cols, prepared.damping);
    result.objectives =
        improve_pruned(problem.weight, damped.empty() ? problem.hessian : damped.data(),
                       options.pattern, options.sweeps, result.matrix);
  }
  return result;
}

}  // namespace curvq
