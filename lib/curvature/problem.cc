#include "curvq/curvature/problem.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/pattern.h"
#include "curvq/nn/math_attention.h"
#include "nn/torch_errors.h"

namespace curvq {
namespace {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return pattern_matches(pattern, name); });
}

void require_match(const std::vector<std::string>& patterns, const Model& model) {
  for (const std::string& pattern : patterns) {
    const bool found = std::any_of(
        model.parameters.begin(), model.parameters.end(),
        [&](const NamedTensor& parameter) { return pattern_matches(pattern, parameter.name); });
    if (found) continue;
    throw UsageError(
        format("pattern '%s' matches none of the %zu parameters of %s; the first is "
               "%s, the last %s",
               pattern.c_str(), model.parameters.size(), model.name.c_str(),
               model.parameters.front().name.c_str(), model.parameters.back().name.c_str()));
  }
}

// "fc1" for "fc1.weight".
std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

void check_tensor(const torch::Tensor& values, const std::string& name) {
  if (!values.is_floating_point() || torch::isfinite(values).all().item<bool>()) return;
  const torch::Tensor bad = torch::nonzero(~torch::isfinite(values.flatten()));
  throw NumericalError(format("%s has %lld values that are not finite, the first at element %lld",
                              name.c_str(), static_cast<long long>(bad.size(0)),
                              static_cast<long long>(bad[0][0].item<int64_t>())));
}

void check_batch(const Batch& data) {
  const auto samples = [](const torch::Tensor& t) {
    return t.defined() && t.dim() > 0 ? t.size(0) : 0;
  };
  if (samples(data.inputs) == 0) throw UsageError("the data hold no samples");
  if (samples(data.inputs) != samples(data.targets)) {
    throw UsageError(format("the data hold %lld inputs but %lld targets",
                            static_cast<long long>(samples(data.inputs)),
                            static_cast<long long>(samples(data.targets))));
  }
  check_tensor(data.inputs, "x of the data");
  check_tensor(data.targets, "y of the data");
}

}  // namespace

Problem::Problem(Model model, std::shared_ptr<const Loss> loss, Batch data, ProblemOptions options)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      data_(std::move(data)),
      options_(std::move(options)) {
  if (model_.parameters.empty())
    throw UsageError(model_.name + " has no parameters that require gradients");
  check_batch(data_);
  num_terms_ = loss_->num_terms(data_.targets);
  if (num_terms_ == 0) throw UsageError("the data hold no loss term: every target is ignored");
  for (const NamedTensor& parameter : model_.parameters)
    check_tensor(parameter.value, model_.name + ": " + parameter.name);
  choose();
  const auto convert = [&](torch::Tensor& data) {
    if (data.is_floating_point()) data = data.to(this->options());
  };
  convert(data_.inputs);
  convert(data_.targets);
}

void Problem::choose() {
  require_match(options_.parameters, model_);
  require_match(options_.ignore, model_);
  chosen_.clear();
  dimension_ = 0;
  for (const NamedTensor& parameter : model_.parameters) {
    const std::string& name = parameter.name;
    if (!options_.parameters.empty() && !matches_any(options_.parameters, name)) continue;
    if (matches_any(options_.ignore, name)) continue;
    if (!parameter.value.requires_grad())
      throw UsageError(model_.name + ": " + name + " does not require gradients; leave it out");
    if (parameter.value.scalar_type() != torch::kFloat32 &&
        parameter.value.scalar_type() != torch::kFloat64) {
      throw UnsupportedError(model_.name + ": " + name + " is " +
                             torch::toString(parameter.value.scalar_type()) +
                             "; convert the model to float32 or float64");
    }
    chosen_.push_back(parameter);
    dimension_ += parameter.value.numel();
  }
  if (chosen_.empty()) throw UsageError("every parameter of " + model_.name + " is left out");
}

Problem Problem::select(std::vector<std::string> parameters) const {
  Problem other = *this;
  other.options_.parameters = std::move(parameters);
  other.choose();
  return other;
}

Problem Problem::with_chunk_size(int64_t chunk_size) const {
  Problem other = *this;
  other.options_.chunk_size = chunk_size;
  return other;
}

Problem Problem::first_samples(int64_t count) const {
  Problem other = with_chunk_size(0);
  other.data_ = {data_.inputs.narrow(0, 0, count), data_.targets.narrow(0, 0, count)};
  other.num_terms_ = std::max<int64_t>(1, loss_->num_terms(other.data_.targets));
  return other;
}

Problem Problem::samples(int64_t first, int64_t count) const {
  Problem other = *this;
  other.data_ = {data_.inputs.narrow(0, first, count), data_.targets.narrow(0, first, count)};
  other.num_terms_ = loss_->num_terms(other.data_.targets);
  if (other.num_terms_ == 0) {
    throw UsageError(format("samples %lld to %lld have no loss term: every target is ignored",
                            static_cast<long long>(first),
                            static_cast<long long>(first + count - 1)));
  }
  return other;
}

torch::TensorOptions Problem::options() const {
  return chosen_.front().value.options().requires_grad(false);
}

std::vector<Segment> Problem::segments() const {
  if (options_.per == Per::kModel) return {{"all", 0, dimension_}};
  std::vector<Segment> segments;
  int64_t offset = 0;
  for (const NamedTensor& parameter : chosen_) {
    const std::string name =
        options_.per == Per::kLayer ? layer_of(parameter.name) : parameter.name;
    if (segments.empty() || segments.back().name != name) segments.push_back({name, offset, 0});
    segments.back().size += parameter.value.numel();
    offset += parameter.value.numel();
  }
  return segments;
}

int64_t Problem::num_chunks() const {
  if (options_.chunk_size <= 0) return 1;
  return (num_samples() + options_.chunk_size - 1) / options_.chunk_size;
}

Batch Problem::chunk(int64_t i) const {
  if (options_.chunk_size <= 0) return data_;
  const int64_t first = i * options_.chunk_size;
  const int64_t count = std::min(options_.chunk_size, num_samples() - first);
  return {data_.inputs.narrow(0, first, count), data_.targets.narrow(0, first, count)};
}

torch::Tensor Problem::outputs(const Batch& chunk) const {
  return with_torch_errors(model_.name, [&] {
    const MathAttention math;
    return model_.forward(chunk);
  });
}

torch::Tensor Problem::loss_of(const Batch& chunk, const torch::Tensor& outputs) const {
  return with_torch_errors(model_.name, [&] {
    const torch::Tensor part = loss_->sum(outputs, chunk.targets) / num_terms_;
    if (torch::GradMode::is_enabled() && !part.requires_grad()) {
      throw UsageError("the loss of " + model_.name +
                       " does not depend on its parameters through differentiable operations");
    }
    if (!std::isfinite(part.item<double>()))
      throw NumericalError(
          format("the loss of %s is %g", model_.name.c_str(), part.item<double>()));
    return part;
  });
}

Problem::Gradient Problem::gradient() const {
  torch::AutoGradMode enable(true);
  Gradient result;
  result.gradient = torch::zeros({dimension_}, options());
  for (int64_t i = 0; i < num_chunks(); ++i) {
    const Batch part = chunk(i);
    const torch::Tensor loss = loss_of(part, outputs(part));
    result.value += loss.item<double>();
    const auto gradients = with_torch_errors(model_.name, [&] {
      return torch::autograd::grad({loss}, values(), {}, false, false, /*allow_unused=*/true);
    });
    for (size_t p = 0; p < chosen_.size(); ++p) {
      if (gradients[p].defined()) continue;
      throw UsageError("the loss of " + model_.name + " does not depend on " + chosen_[p].name +
                       "; leave it out");
    }
    add_to(result.gradient, gradients);
  }
  check_finite(result.gradient, "the gradient");
  return result;
}

double Problem::value() const {
  torch::NoGradGuard no_grad;
  double value = 0;
  for (int64_t i = 0; i < num_chunks(); ++i) {
    const Batch part = chunk(i);
    value += loss_of(part, outputs(part)).item<double>();
  }
  return value;
}

std::vector<torch::Tensor> Problem::split(const torch::Tensor& vector) const {
  std::vector<torch::Tensor> tensors;
  int64_t offset = 0;
  for (const NamedTensor& parameter : chosen_) {
    const int64_t size = parameter.value.numel();
    tensors.push_back(vector.narrow(0, offset, size).view(parameter.value.sizes()));
    offset += size;
  }
  return tensors;
}

void Problem::copy_to(torch::Tensor vector, const std::vector<torch::Tensor>& tensors) const {
  torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> parts = split(vector);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (tensors[i].defined()) {
      torch::Tensor(parts[i]).copy_(tensors[i]);
    } else {
      torch::Tensor(parts[i]).zero_();
    }
  }
}

void Problem::add_to(torch::Tensor vector, const std::vector<torch::Tensor>& tensors) const {
  torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> parts = split(vector);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (tensors[i].defined()) torch::Tensor(parts[i]).add_(tensors[i]);
  }
}

std::vector<torch::Tensor> Problem::values() const {
  std::vector<torch::Tensor> values;
  for (const NamedTensor& parameter : chosen_) values.push_back(parameter.value);
  return values;
}

void Problem::check_finite(const torch::Tensor& vector, const std::string& what) const {
  // A sum is finite where all of its terms are, unless it overflows; one pass, no memory.
  if (std::isfinite(vector.sum().item<double>())) return;
  const std::vector<torch::Tensor> parts = split(vector);
  for (size_t i = 0; i < parts.size(); ++i)
    check_tensor(parts[i], what + " by " + chosen_[i].name + " of " + model_.name);
}

}  // namespace curvq
