#include <chrono>

#include "curvq/compress/quantize.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

double sum_of_squares(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return sum;
}

std::vector<float> error_of(const LayerProblem& problem, const QuantizedMatrix& matrix) {
  std::vector<float> error(problem.rows * problem.cols);
  dequantize(matrix, error.data());
  for (size_t i = 0; i < error.size(); ++i) error[i] = problem.weight[i] - error[i];
  return error;
}

void set_relative_errors(const LayerProblem& problem, const QuantizedMatrix& rtn, const QuantizedMatrix& chosen,
                         LayerResult& result) {
  const std::vector<float> weight(problem.weight, problem.weight + problem.rows * problem.cols);
  const std::vector<float> rtn_error = error_of(problem, rtn);
  const bool same = &rtn == &chosen;
  const std::vector<float> error = same ? std::vector<float>() : error_of(problem, chosen);
  std::vector<double> traces(3, 0.0);
  if (problem.hessian != nullptr) {
    std::vector<const float*> matrices = {weight.data(), rtn_error.data()};
    if (!same) matrices.push_back(error.data());
    traces = quadratic_traces(matrices, problem.rows, problem.hessian, problem.cols);
  }
  if (!(traces[0] > 0)) {
    traces = {sum_of_squares(weight), sum_of_squares(rtn_error), sum_of_squares(error)};
  }
  if (same) traces.resize(3, 0.0), traces[2] = traces[1];
  const double scale = traces[0] > 0 ? traces[0] : 1.0;  // a weight of zeros has no error
  result.rtn_relative_error = traces[1] / scale;
  result.relative_error = traces[2] / scale;
}

}  // namespace

QuantizedMatrix quantize_layer(const LayerProblem& problem, Method method, const GptqOptions& gptq_options,
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
  const QuantizedMatrix rtn = named([&] {
    return quantize_rtn(problem.weight, problem.rows, problem.cols, problem.scheme, problem.tensor_amax);
  });
  QuantizedMatrix chosen;
  if (method == Method::kGptq) {
    if (problem.hessian == nullptr) throw UsageError(problem.name + ": gptq needs this layer's hessian or inputs");
    GptqResult solved = gptq(problem.weight, problem.hessian, rtn.grid, gptq_options, problem.name);
    result.damping = solved.damping;
    result.dead_inputs = solved.dead_inputs;
    if (solved.all_dead) {
      result.note = "no input was ever non-zero; rounded to nearest";
      log_warning(problem.name + ": " + result.note);
    } else if (solved.damping > gptq_options.damping) {
      result.note = format("damping raised to %g: the hessian is singular", solved.damping);
      log_warning(problem.name + ": " + result.note);
    }
    chosen = std::move(solved.matrix);
    set_relative_errors(problem, rtn, chosen, result);
  } else {
    chosen = rtn;
    set_relative_errors(problem, rtn, rtn, result);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return chosen;
}

}  // namespace curvq
