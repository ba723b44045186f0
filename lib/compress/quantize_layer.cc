#include <algorithm>
#include <chrono>

#include "compress/inverse_of_inputs.h"
#include "compress/layer_error.h"
#include "compress/rounding_steps.h"
#include "curvq/compress/prune_model.h"
#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

void set_relative_errors(const LayerProblem& problem, const QuantizedMatrix& rtn,
                         const QuantizedMatrix* chosen, LayerResult& result) {
  const internal::LayerError error(problem.weight, problem.rows, problem.cols, problem.hessian);
  std::vector<float> values(problem.rows * problem.cols);
  dequantize(rtn, values.data());
  result.relative_error = result.rtn_relative_error = error.of(values.data(), false);
  if (chosen == nullptr) return;
  dequantize(*chosen, values.data());
  result.relative_error = error.of(values.data(), true);
}

PrunedMatrix prune_first(const LayerProblem& problem, const PruneOptions& options,
                         LayerResult& result) {
  PruneProblem pruning;
  pruning.name = problem.name;
  pruning.weight = problem.weight;
  pruning.rows = problem.rows;
  pruning.cols = problem.cols;
  pruning.hessian = problem.hessian;
  PrunedLayer layer;
  PrunedMatrix matrix = prune_layer(pruning, options, DType::kF32, layer);
  result.sparsity = layer.sparsity;
  result.pruned_relative_error = layer.relative_error;
  return matrix;
}

void tell(LayerResult& result, const std::string& note) {
  log_warning(result.name + ": " + note);
  result.note += (result.note.empty() ? "" : "; ") + note;
}

// Sweeps from `gptq` on, with G, then with ever less of it, until held-out tokens see less error
// than before; keeps what they like best. `steps` holds those of `rtn` and `gptq`.
QuantizedMatrix refine_guarded(const LayerProblem& problem, const QuantizedMatrix& rtn,
                               const QuantizedMatrix& gptq, const float* hessian,
                               const RefineOptions& options, const uint8_t* mask,
                               internal::RoundingSteps& steps, LayerResult& result) {
  const int64_t rows = problem.rows;
  std::string note;
  HeldOutErrors errors{*steps.all()[0].held_out, *steps.all()[1].held_out, 0};
  QuantizedMatrix kept = gptq;
  errors.kept = errors.gptq;
  std::vector<float> factor(problem.output_factor, problem.output_factor + rows * rows);
  for (const double towards_identity : {0.0, 0.5, 1.0}) {
    for (int64_t i = 0; i < rows * rows; ++i) {
      factor[i] = static_cast<float>((1 - towards_identity) * problem.output_factor[i] +
                                     (i % (rows + 1) == 0 ? towards_identity : 0.0));
    }
    QuantizedMatrix trial = gptq;
    const std::vector<double> objectives =
        refine(problem.weight, hessian, towards_identity < 1 ? factor.data() : nullptr, trial,
               options, mask);
    if (towards_identity == 0) {
      steps.add_sweeps(objectives, trial);
    } else {
      steps.add(towards_identity < 1 ? "sweeps with half of G" : "sweeps without G", trial);
    }
    const double of_trial = *steps.all().back().held_out;
    if (!(of_trial < errors.gptq)) continue;
    kept = std::move(trial);
    errors.kept = of_trial;
    result.shrinkage = 1 - (1 - problem.factor_shrinkage) * (1 - towards_identity);
    if (towards_identity > 0)
      note = towards_identity < 1 ? "half of the output factor: all of it did worse"
                                  : "no output factor: with it held-out tokens did worse";
    break;
  }
  if (errors.kept == errors.gptq) note = "no sweeps: with them held-out tokens did worse";
  if (errors.rtn < errors.kept) {
    note = "rounded to nearest: held-out tokens did worse with everything else";
    kept = rtn;
    result.rounded_to_nearest = true;
    result.shrinkage.reset();
    errors.kept = errors.rtn;
  }
  if (!note.empty()) tell(result, note);
  result.held_out = errors;
  return kept;
}

GptqResult error_feedback(const LayerProblem& problem, const float* weight, const ScaleGrid& grid,
                          const QuantizeOptions& options, const uint8_t* mask) {
  const int64_t cols = problem.cols;
  if (!options.inverse_of_inputs)
    return gptq(weight, problem.hessian, grid, options.gptq, problem.name, mask);
  if (problem.inputs == nullptr)
    throw UsageError(problem.name + ": a Sherman-Morrison inverse needs this layer's inputs");
  check_hessian(problem.hessian, cols, problem.name);
  GptqOptions gptq_options = options.gptq;
  std::string because;
  gptq_options.damping = starting_damping(problem.hessian, cols, gptq_options.damping, &because);
  double sum = 0;
  int64_t live = 0;
  for (int64_t j = 0; j < cols; ++j) {
    sum += problem.hessian[j * cols + j];
    live += problem.hessian[j * cols + j] != 0;
  }
  std::vector<double> inverse;
  if (live > 0) {
    inverse =
        internal::sherman_morrison_inverse(problem.inputs, problem.num_inputs, cols,
                                           gptq_options.damping, sum / static_cast<double>(live));
  }
  GptqResult solved =
      gptq(weight, problem.hessian, grid, gptq_options, problem.name, mask, inverse);
  solved.raised_because = because;
  return solved;
}

}  // namespace

QuantizedMatrix quantize_layer(const LayerProblem& problem, const QuantizeOptions& options,
                               LayerResult& result, std::vector<uint8_t>* mask) {
  const auto start = std::chrono::steady_clock::now();
  result.name = problem.name;
  result.scheme = problem.scheme.describe();
  result.rows = problem.rows;
  result.cols = problem.cols;
  result.bits_per_weight = problem.scheme.bits_per_weight(problem.rows, problem.cols);
  const auto named = [&](auto&& work) {
    try {
      return work();
    } catch (const NumericalError& error) {
      const std::string text = error.what();
      throw NumericalError(text.rfind(problem.name, 0) == 0 ? text : problem.name + ": " + text);
    }
  };
  // What is rounded, and which of it stays: of a layer that is not pruned, all.
  PrunedMatrix pruned;
  const float* weight = problem.weight;
  if (options.prune) {
    pruned = prune_first(problem, *options.prune, result);
    weight = pruned.weight.data();
  }
  const uint8_t* kept = options.prune ? pruned.mask.data() : nullptr;
  QuantizedMatrix matrix = named([&] {
    return quantize_rtn(weight, problem.rows, problem.cols, problem.scheme, problem.tensor_amax);
  });
  if (options.method == Method::kRtn) {
    set_relative_errors(problem, matrix, nullptr, result);
    result.steps = {{"rtn", result.rtn_relative_error, {}}};
  } else {
    if (problem.hessian == nullptr)
      throw UsageError(problem.name + ": gptq needs this layer's hessian or inputs");
    const bool obs = options.gptq.rounding_order == RoundingOrder::kSaliency;
    const std::string feedback = std::string(options.gptq.diagonal ? "obd"
                                             : obs                 ? "obs"
                                                                   : "gptq") +
                                 (options.gptq.search_scales ? " with scale search" : "");
    GptqResult solved = error_feedback(problem, weight, matrix.grid, options, kept);
    result.damping = solved.damping;
    result.dead_inputs = solved.dead_inputs;
    // Where damping had to be raised, H says more than its tokens know, or is no covariance.
    std::vector<float> damped;
    const float* hessian = problem.hessian;
    if (solved.all_dead) {
      result.rounded_to_nearest = true;
      tell(result, "no input was ever non-zero; rounded to nearest");
    } else if (!solved.raised_because.empty()) {
      tell(result, format("damping raised to %.3g: ", solved.damping) + solved.raised_because);
      damped = damped_hessian(problem.hessian, problem.cols, solved.damping);
      hessian = damped.data();
    }
    if (options.refine.sweeps > 0 && !solved.all_dead) {
      internal::RoundingSteps steps(problem, hessian);
      steps.add("rtn", matrix);
      steps.add(feedback, solved.matrix);
      solved.matrix = named([&] {
        if (problem.held_out_hessian != nullptr) {
          return refine_guarded(problem, matrix, solved.matrix, hessian, options.refine, kept,
                                steps, result);
        }
        steps.add_sweeps(refine(problem.weight, hessian, problem.output_factor, solved.matrix,
                                options.refine, kept),
                         solved.matrix);
        if (problem.output_factor != nullptr) result.shrinkage = problem.factor_shrinkage;
        return std::move(solved.matrix);
      });
      result.steps = steps.all();
    }
    const double whole =
        quadratic_trace(problem.weight, problem.rows, problem.hessian, problem.cols, false);
    if (whole > 0) {
      result.plane_error = solved.objective / whole;
      result.plane_bound = solved.nearest_plane_bound / whole;
    }
    set_relative_errors(problem, matrix, &solved.matrix, result);
    if (result.steps.empty())
      result.steps = {{"rtn", result.rtn_relative_error, {}},
                      {feedback, result.relative_error, {}}};
    matrix = std::move(solved.matrix);
  }
  if (mask != nullptr) *mask = std::move(pruned.mask);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return matrix;
}

void warn_of_rounding_to_nearest(const std::vector<LayerResult>& layers) {
  const auto count = std::count_if(layers.begin(), layers.end(),
                                   [](const LayerResult& l) { return l.rounded_to_nearest; });
  if (count == 0) return;
  log_warning(format("%lld of %zu layers were rounded to nearest after all; see their notes",
                     static_cast<long long>(count), layers.size()));
}

}  // namespace curvq
