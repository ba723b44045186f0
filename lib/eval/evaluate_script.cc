#include "curvq/eval/evaluate_script.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/progress.h"
#include "curvq/io/tensor.h"

namespace curvq {
namespace {

constexpr int64_t kChunk = 256;  // samples

void require_finite(const std::string& what, const torch::Tensor& tensor, int64_t first_sample) {
  if (!tensor.is_floating_point()) return;
  const torch::Tensor bad = torch::isfinite(tensor).logical_not().nonzero();
  if (bad.size(0) == 0) return;
  throw NumericalError(format("%s is not finite at sample %lld", what.c_str(),
                              static_cast<long long>(first_sample + bad[0][0].item<int64_t>())));
}

torch::Tensor outputs_of(const ScriptModel& model, const torch::Tensor& x, int64_t first) {
  const torch::Tensor outputs = model.forward(x).to(torch::kFloat64);
  require_finite("the output of " + model.path(), outputs, first);
  return outputs;
}

// Running mean of terms and its standard error.
struct Mean {
  double sum = 0, squares = 0;
  int64_t count = 0;

  void add(const torch::Tensor& terms) {
    sum += terms.sum().item<double>();
    squares += terms.square().sum().item<double>();
    count += terms.numel();
  }
  double mean() const { return sum / static_cast<double>(count); }
  double error() const {
    const auto n = static_cast<double>(count);
    return std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
};

struct Sums {
  Mean loss, reference_loss, correct, kl, agreement, difference;
};

std::string fit_text(const torch::Tensor& outputs, const torch::Tensor& y) {
  return "y has the shape " + shape_string(y.sizes().vec()) + ", the outputs have " +
         shape_string(outputs.sizes().vec());
}

void add_classes(const torch::Tensor& outputs, const torch::Tensor& reference,
                 const torch::Tensor& y, Sums& sums) {
  if (outputs.dim() != y.dim() + 1 || outputs.sizes().slice(0, y.dim()) != y.sizes()) {
    throw UsageError(fit_text(outputs, y) +
                     "; integers y are classes, [n, ...] for outputs [n, ..., classes]");
  }
  const int64_t classes = outputs.size(-1), largest = y.max().item<int64_t>();
  if (largest >= classes) {
    throw UsageError(format("y holds the class %lld, the model has %lld classes",
                            static_cast<long long>(largest), static_cast<long long>(classes)));
  }
  const torch::Tensor counts = y.ge(0).flatten(), targets = y.flatten().clamp_min(0).unsqueeze(1);
  const auto losses = [&](const torch::Tensor& log_p) {
    return log_p.gather(1, targets).squeeze(1).masked_select(counts).neg();
  };
  const torch::Tensor log_q = torch::log_softmax(outputs.reshape({-1, classes}), -1);
  const torch::Tensor best = log_q.argmax(-1);
  sums.loss.add(losses(log_q));
  sums.correct.add(best.eq(targets.squeeze(1)).masked_select(counts).to(torch::kFloat64));
  if (!reference.defined()) return;
  const torch::Tensor log_p = torch::log_softmax(reference.reshape({-1, classes}), -1);
  sums.reference_loss.add(losses(log_p));
  sums.kl.add((log_p.exp() * (log_p - log_q)).sum(-1));
  sums.agreement.add(best.eq(log_p.argmax(-1)).to(torch::kFloat64));
}

void add_values(const torch::Tensor& outputs, const torch::Tensor& reference,
                const torch::Tensor& y, Sums& sums) {
  if (outputs.sizes() != y.sizes())
    throw UsageError(fit_text(outputs, y) + "; floating-point y have the outputs' shape");
  const torch::Tensor targets = y.to(torch::kFloat64);
  sums.loss.add((outputs - targets).square());
  if (!reference.defined()) return;
  sums.reference_loss.add((reference - targets).square());
  sums.difference.add((outputs - reference).square());
}

}  // namespace

ScriptEvalResult evaluate_script(const ScriptModel& model, const torch::Tensor& x,
                                 const torch::Tensor& y, const ScriptModel* reference) {
  if (x.dim() == 0 || y.dim() == 0 || x.size(0) == 0 || x.size(0) != y.size(0)) {
    throw UsageError("x and y must hold as many samples, at least one: their shapes are " +
                     shape_string(x.sizes().vec()) + " and " + shape_string(y.sizes().vec()));
  }
  require_finite("x", x, 0);
  require_finite("y", y, 0);
  ScriptEvalResult result;
  result.samples = x.size(0);
  result.classifies = !y.is_floating_point();
  result.has_reference = reference != nullptr;
  if (result.classifies && y.lt(0).all().item<bool>())
    throw UsageError("every target in y is negative, so that none counts");
  Sums sums;
  Progress progress("evaluating", result.samples);
  for (int64_t first = 0; first < result.samples; first += kChunk) {
    const int64_t count = std::min(kChunk, result.samples - first);
    const torch::Tensor inputs = x.narrow(0, first, count), targets = y.narrow(0, first, count);
    const torch::Tensor outputs = outputs_of(model, inputs, first);
    torch::Tensor others;
    if (reference != nullptr) {
      others = outputs_of(*reference, inputs, first);
      if (others.sizes() != outputs.sizes()) {
        throw UsageError("the outputs have the shape " + shape_string(outputs.sizes().vec()) +
                         ", those of the reference " + shape_string(others.sizes().vec()));
      }
    }
    (result.classifies ? add_classes : add_values)(outputs, others, targets, sums);
    progress.advance(count);
  }
  result.terms = sums.loss.count;
  result.loss = sums.loss.mean();
  result.loss_stderr = sums.loss.error();
  result.accuracy = sums.correct.mean();
  result.reference_loss = sums.reference_loss.mean();
  result.kl_mean = sums.kl.mean();
  result.kl_stderr = sums.kl.error();
  result.top1_agreement = sums.agreement.mean();
  result.squared_difference = sums.difference.mean();
  return result;
}

}  // namespace curvq
