#include <algorithm>
#include <chrono>

#include "compress/layer_error.h"
#include "compress/saliency_mask.h"
#include "curvq/compress/prune_model.h"
#include "curvq/core/log.h"

namespace curvq {

PrunedMatrix prune_layer(const PruneProblem& problem, const PruneOptions& options, DType dtype,
                         PrunedLayer& result) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t count = problem.rows * problem.cols;
  result.name = problem.name;
  result.pattern = options.pattern.describe();
  result.rows = problem.rows;
  result.cols = problem.cols;
  PruneResult solved = prune(problem, options);
  PrunedMatrix& matrix = solved.matrix;
  const DType stored = dtype == DType::kF64 ? DType::kF32 : dtype;
  for (float& value : matrix.weight) value = round_to_dtype(value, stored);
  result.sparsity = static_cast<double>(std::count(matrix.mask.begin(), matrix.mask.end(), 0)) /
                    static_cast<double>(count);
  result.damping = solved.damping;
  result.dead_inputs = solved.dead_inputs;

  const internal::LayerError error(problem.weight, problem.rows, problem.cols, problem.hessian);
  result.relative_error = error.of(matrix.weight.data(), true);
  std::vector<float> sizes(count), plain(problem.weight, problem.weight + count);
  for (int64_t i = 0; i < count; ++i) sizes[i] = std::abs(plain[i]);
  const std::vector<uint8_t> largest =
      internal::mask_of_largest(sizes, problem.rows, problem.cols, options.pattern, false);
  for (int64_t i = 0; i < count; ++i) plain[i] *= largest[i];
  result.magnitude_relative_error = error.of(plain.data(), false);

  if (solved.all_dead && options.method != PruneMethod::kMagnitude) {
    result.note = "no input was ever non-zero; the smallest weights went";
  } else if (!solved.raised_because.empty()) {
    result.note = format("damping raised to %.3g: ", solved.damping) + solved.raised_because;
  }
  if (!result.note.empty()) log_warning(problem.name + ": " + result.note);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(matrix);
}

}  // namespace curvq
