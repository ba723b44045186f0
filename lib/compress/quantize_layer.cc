#include <chrono>

#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

double sum_of_squares(const float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

std::vector<float> error_of(const LayerProblem& problem, const QuantizedMatrix& matrix) {
  std::vector<float> error(problem.rows * problem.cols);
  dequantize(matrix, error.data());
  for (size_t i = 0; i < error.size(); ++i) error[i] = problem.weight[i] - error[i];
  return error;
}

void set_relative_errors(const LayerProblem& problem, const QuantizedMatrix& rtn,
                         const QuantizedMatrix* chosen, LayerResult& result) {
  const std::vector<float> rtn_error = error_of(problem, rtn);
  const std::vector<float> error = chosen ? error_of(problem, *chosen) : std::vector<float>();
  const auto trace = [&](const float* d, bool cancels) {
    return quadratic_trace(d, problem.rows, problem.hessian, problem.cols, cancels);
  };
  const int64_t count = problem.rows * problem.cols;
  double whole = problem.hessian ? trace(problem.weight, false) : 0.0, of_rtn, of_chosen;
  if (whole > 0) {
    of_rtn = trace(rtn_error.data(), false);
    of_chosen = chosen ? trace(error.data(), true) : of_rtn;
  } else {
    whole = sum_of_squares(problem.weight, count);
    of_rtn = sum_of_squares(rtn_error.data(), count);
    of_chosen = chosen ? sum_of_squares(error.data(), count) : of_rtn;
  }
  if (whole == 0) whole = 1;  // a weight of zeros has no error
  result.rtn_relative_error = of_rtn / whole;
  result.relative_error = of_chosen / whole;
}

// Sweeps from `gptq` on, with G, then with ever less of it, until held-out tokens see less error
// than before; keeps what they like best.
QuantizedMatrix refine_guarded(const LayerProblem& problem, const QuantizedMatrix& rtn,
                               const QuantizedMatrix& gptq, const RefineOptions& options,
                               LayerResult& result) {
  const int64_t rows = problem.rows;
  const auto trace = [&](const float* d) {
    return kronecker_trace(d, rows, problem.held_out_factor, problem.held_out_hessian,
                           problem.cols);
  };
  const double whole = trace(problem.weight);
  const auto error = [&](const QuantizedMatrix& matrix) {
    return trace(error_of(problem, matrix).data()) / (whole > 0 ? whole : 1);
  };
  HeldOutErrors errors{error(rtn), error(gptq), 0};
  QuantizedMatrix kept = gptq;
  errors.kept = errors.gptq;
  std::vector<float> factor(problem.output_factor, problem.output_factor + rows * rows);
  for (const double towards_identity : {0.0, 0.5, 1.0}) {
    for (int64_t i = 0; i < rows * rows; ++i) {
      factor[i] = static_cast<float>((1 - towards_identity) * problem.output_factor[i] +
                                     (i % (rows + 1) == 0 ? towards_identity : 0.0));
    }
    QuantizedMatrix trial = gptq;
    refine(problem.weight, problem.hessian, towards_identity < 1 ? factor.data() : nullptr, trial,
           options);
    const double of_trial = error(trial);
    if (!(of_trial < errors.gptq)) continue;
    kept = std::move(trial);
    errors.kept = of_trial;
    if (towards_identity > 0)
      result.note = towards_identity < 1 ? "half of the output factor: all of it did worse"
                                         : "no output factor: with it held-out tokens did worse";
    break;
  }
  if (errors.kept == errors.gptq) result.note = "no sweeps: with them held-out tokens did worse";
  if (errors.rtn < errors.kept) {
    result.note = "rounded to nearest: held-out tokens did worse with everything else";
    kept = rtn;
    errors.kept = errors.rtn;
  }
  if (!result.note.empty()) log_warning(problem.name + ": " + result.note);
  result.held_out = errors;
  return kept;
}

}  // namespace

QuantizedMatrix quantize_layer(const LayerProblem& problem, const QuantizeOptions& options,
                               LayerResult& result) {
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
  QuantizedMatrix matrix = named([&] {
    return quantize_rtn(problem.weight, problem.rows, problem.cols, problem.scheme,
                        problem.tensor_amax);
  });
  if (options.method == Method::kRtn) {
    set_relative_errors(problem, matrix, nullptr, result);
  } else {
    if (problem.hessian == nullptr)
      throw UsageError(problem.name + ": gptq needs this layer's hessian or inputs");
    GptqResult solved =
        gptq(problem.weight, problem.hessian, matrix.grid, options.gptq, problem.name);
    result.damping = solved.damping;
    result.dead_inputs = solved.dead_inputs;
    if (solved.all_dead) {
      result.note = "no input was ever non-zero; rounded to nearest";
      log_warning(problem.name + ": " + result.note);
    } else if (solved.damping > options.gptq.damping) {
      result.note = format("damping raised to %g: the hessian is singular", solved.damping);
      log_warning(problem.name + ": " + result.note);
    }
    if (options.refine.sweeps > 0 && !solved.all_dead && problem.held_out_hessian != nullptr) {
      solved.matrix = named(
          [&] { return refine_guarded(problem, matrix, solved.matrix, options.refine, result); });
    } else if (options.refine.sweeps > 0 && !solved.all_dead) {
      named([&] {
        return refine(problem.weight, problem.hessian, problem.output_factor, solved.matrix,
                      options.refine);
      });
    }
    set_relative_errors(problem, matrix, &solved.matrix, result);
    matrix = std::move(solved.matrix);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return matrix;
}

}  // namespace curvq
