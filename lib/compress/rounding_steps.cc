#include "compress/rounding_steps.h"

#include "curvq/linalg/symmetric.h"

namespace curvq::internal {
namespace {

double positive(double value) { return value > 0 ? value : 1; }

}  // namespace

RoundingSteps::RoundingSteps(const LayerProblem& problem, const float* hessian)
    : problem_(problem), hessian_(hessian) {
  whole_ = positive(calibration(problem.weight));
  if (problem.held_out_hessian != nullptr) held_out_whole_ = positive(held_out(problem.weight));
}

void RoundingSteps::add(const std::string& name, const QuantizedMatrix& matrix) {
  add(name, matrix, nullptr);
}

void RoundingSteps::add(const std::string& name, const QuantizedMatrix& matrix,
                        const double* objective) {
  std::vector<float> d(problem_.rows * problem_.cols);
  dequantize(matrix, d.data());
  for (size_t i = 0; i < d.size(); ++i) d[i] = problem_.weight[i] - d[i];
  const double seen = objective != nullptr ? *objective : calibration(d.data());
  steps_.push_back({name, seen / whole_, std::nullopt});
  if (problem_.held_out_hessian != nullptr)
    steps_.back().held_out = held_out(d.data()) / held_out_whole_;
}

void RoundingSteps::add_sweeps(const std::vector<double>& objectives,
                               const QuantizedMatrix& matrix) {
  for (size_t i = 1; i + 1 < objectives.size(); ++i)
    steps_.push_back({"sweep " + std::to_string(i), objectives[i] / whole_, std::nullopt});
  add("sweep " + std::to_string(objectives.size() - 1), matrix, &objectives.back());
}

double RoundingSteps::calibration(const float* d) const {
  return problem_.output_factor == nullptr
             ? quadratic_trace(d, problem_.rows, hessian_, problem_.cols)
             : kronecker_trace(d, problem_.rows, problem_.output_factor, hessian_, problem_.cols);
}

double RoundingSteps::held_out(const float* d) const {
  return problem_.held_out_factor == nullptr
             ? quadratic_trace(d, problem_.rows, problem_.held_out_hessian, problem_.cols)
             : kronecker_trace(d, problem_.rows, problem_.held_out_factor,
                               problem_.held_out_hessian, problem_.cols);
}

}  // namespace curvq::internal
