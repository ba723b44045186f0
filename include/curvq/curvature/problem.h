// A model, a loss and a fixed set of data: a function of the model's parameters.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/loss.h"
#include "curvq/curvature/model.h"

namespace curvq {

// Parameters that a name stands for: the tensor, or the layer that owns it ("fc1" of "fc1.weight").
enum class Per { kModel, kLayer, kTensor };

struct ProblemOptions {
  // Samples that go through the model together. Memory grows with it; results do not depend on it,
  // but for rounding. 0: all.
  int64_t chunk_size = 0;
  // Parameters to differentiate by: globs or "re:" expressions over their names. Empty: all.
  std::vector<std::string> parameters = {};
  // Parameters to leave out, by the same rules.
  std::vector<std::string> ignore = {};
  // What segments() of operators are.
  Per per = Per::kTensor;
};

// f(theta) = 1/M sum over the M loss terms of all samples, theta the chosen parameters as one
// vector: in the model's order, each flattened row-major. Copies share parameters and data.
class Problem {
 public:
  // Floating-point data are converted to the parameters' dtype.
  // Throws UsageError for no samples, sizes that do not agree, a pattern that matches no parameter
  // or a selection that is empty, or no loss term in the data; NumericalError naming the tensor and
  // the first place for parameters or data that are not finite.
  Problem(Model model, std::shared_ptr<const Loss> loss, Batch data, ProblemOptions options = {});

  // The same with other parameters chosen.
  Problem select(std::vector<std::string> parameters) const;

  // The same with other chunks, with the first `count` samples alone, in one chunk, and with some
  // samples, in chunks as before (UsageError if they have no loss term).
  Problem with_chunk_size(int64_t chunk_size) const;
  Problem first_samples(int64_t count) const;
  Problem samples(int64_t first, int64_t count) const;

  const Model& model() const { return model_; }
  const Loss& loss() const { return *loss_; }
  const ProblemOptions& problem_options() const { return options_; }
  // The chosen ones.
  const std::vector<NamedTensor>& parameters() const { return chosen_; }
  int64_t dimension() const { return dimension_; }
  torch::TensorOptions options() const;  // of vectors
  std::vector<Segment> segments() const;

  const Batch& data() const { return data_; }
  int64_t num_samples() const { return data_.targets.size(0); }
  int64_t num_terms() const { return num_terms_; }
  int64_t num_chunks() const;
  Batch chunk(int64_t i) const;

  // The model's outputs for a chunk, differentiable twice: attention is not fused. Errors of
  // LibTorch become UnsupportedError, naming the model.
  torch::Tensor outputs(const Batch& chunk) const;
  // The chunk's part of f, a differentiable scalar. Throws UsageError if it does not depend on the
  // parameters through differentiable operations, NumericalError if it is not finite.
  torch::Tensor loss_of(const Batch& chunk, const torch::Tensor& outputs) const;

  // f and its gradient [dimension], chunk by chunk. Throws UsageError naming a chosen parameter
  // that the loss does not depend on, NumericalError naming the tensor with a value that is not
  // finite.
  struct Gradient {
    double value = 0;
    torch::Tensor gradient;
  };
  Gradient gradient() const;
  double value() const;

  // A vector [dimension] as tensors of the parameters' shapes, and back. split() returns views.
  std::vector<torch::Tensor> split(const torch::Tensor& vector) const;
  // vector = tensors, vector += tensors; undefined ones are zero.
  void copy_to(torch::Tensor vector, const std::vector<torch::Tensor>& tensors) const;
  void add_to(torch::Tensor vector, const std::vector<torch::Tensor>& tensors) const;
  std::vector<torch::Tensor> values() const;

  // Throws NumericalError, beginning with `what`, naming the parameter where `vector` [dimension]
  // has its first value that is not finite.
  void check_finite(const torch::Tensor& vector, const std::string& what) const;

 private:
  void choose();

  Model model_;
  std::shared_ptr<const Loss> loss_;
  Batch data_;
  ProblemOptions options_;
  std::vector<NamedTensor> chosen_;
  int64_t dimension_ = 0, num_terms_ = 0;
};

}  // namespace curvq
