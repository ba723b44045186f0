// Operators whose products are counted.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "curvq/core/progress.h"
#include "curvq/curvature/linear_operator.h"

namespace curvq::cli {

// Moves a progress line on with each product.
class CountedOperator : public LinearOperator {
 public:
  CountedOperator(LinearOperator& op, const std::string& label, int64_t products)
      : op_(op), progress_(label, products) {}

  int64_t dimension() const override { return op_.dimension(); }
  torch::TensorOptions options() const override { return op_.options(); }
  torch::Tensor apply(const torch::Tensor& vectors) override {
    torch::Tensor products = op_.apply(vectors);
    progress_.advance(vectors.size(0));
    if (keeps_forms_) forms_.push_back((vectors * products).sum(1, false, torch::kFloat64));
    return products;
  }
  std::vector<Segment> segments() const override { return op_.segments(); }

  // Whether v^T H v of each vector is kept, [vectors so far].
  void keep_forms() { keeps_forms_ = true; }
  torch::Tensor forms() const { return torch::cat(forms_); }

 private:
  LinearOperator& op_;
  Progress progress_;
  bool keeps_forms_ = false;
  std::vector<torch::Tensor> forms_;
};

}  // namespace curvq::cli
