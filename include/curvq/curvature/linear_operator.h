// Square linear operators on the space of a model's parameters: what estimators work on.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace curvq {

// A stretch of the parameter vector, usually one tensor.
struct Segment {
  std::string name;
  int64_t offset = 0;
  int64_t size = 0;
};

// A symmetric linear map v -> H v of vectors [dimension].
class LinearOperator {
 public:
  virtual ~LinearOperator() = default;

  virtual int64_t dimension() const = 0;
  // dtype (float32 or float64) and device of vectors.
  virtual torch::TensorOptions options() const = 0;
  // vectors [k, dimension] -> [k, dimension]: one product a row. Throws NumericalError for a result
  // that is not finite. The result shares no memory with the argument.
  virtual torch::Tensor apply(const torch::Tensor& vectors) = 0;
  // Named stretches that cover the vector in order, for estimates by tensor or by layer.
  virtual std::vector<Segment> segments() const { return {{"all", 0, dimension()}}; }
};

// A symmetric matrix held as it is: for small problems and for tests.
class DenseOperator : public LinearOperator {
 public:
  // matrix [n, n], float32 or float64. Throws UsageError if it is not square.
  explicit DenseOperator(torch::Tensor matrix, std::vector<Segment> segments = {});

  int64_t dimension() const override { return matrix_.size(0); }
  torch::TensorOptions options() const override { return matrix_.options(); }
  torch::Tensor apply(const torch::Tensor& vectors) override;
  std::vector<Segment> segments() const override;
  const torch::Tensor& matrix() const { return matrix_; }

 private:
  torch::Tensor matrix_;
  std::vector<Segment> segments_;
};

// The diagonal block H_bb of an operator that a segment stands for; a product costs one of `op`,
// which must live as long.
class BlockOperator : public LinearOperator {
 public:
  BlockOperator(LinearOperator& op, Segment segment) : op_(op), segment_(std::move(segment)) {}

  int64_t dimension() const override { return segment_.size; }
  torch::TensorOptions options() const override { return op_.options(); }
  torch::Tensor apply(const torch::Tensor& vectors) override;

 private:
  LinearOperator& op_;
  Segment segment_;
};

// The matrix of an operator, [n, n], by `chunk` products at a time with unit vectors.
torch::Tensor to_dense(LinearOperator& op, int64_t chunk = 64);

}  // namespace curvq
