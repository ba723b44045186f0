// Several processes that go through different parts of the data, on one machine or several.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <memory>

#include "curvq/curvature/kfac.h"
#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/problem.h"

namespace curvq {

// Processes that call the same functions in the same order. LibTorch's c10d: with NCCL where it has
// that and a GPU (the one that LOCAL_RANK names), with Gloo over TCP otherwise.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  // Joins the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell of, as torchrun sets
  // them; null where WORLD_SIZE is not set. Waits `timeout` for the others, here and in sum().
  // Throws UsageError naming the variable that is missing or no such number, ResourceError where
  // the others do not come, UnsupportedError where curvq was built without Gloo's headers.
  static std::unique_ptr<ProcessGroup> from_environment(std::chrono::milliseconds timeout);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Replaces a contiguous tensor by its sum over the processes, the same bits in each. Throws
  // ResourceError, naming this rank, if another process is gone or does not come in time.
  virtual void sum(torch::Tensor& tensor) = 0;

  double sum(double value);
};

// This process's part of `samples`: consecutive ones, as many as others have to within one. Throws
// UsageError for fewer samples than processes.
struct SampleRange {
  int64_t first = 0, count = 0;
};
SampleRange part_of(int64_t samples, const ProcessGroup& group);

// The operator of all data, a mean over loss terms, out of those of each process's part.
class DistributedOperator : public LinearOperator {
 public:
  // Both must live as long. `share`: of all loss terms, those that are here.
  DistributedOperator(LinearOperator& local, double share, ProcessGroup& group)
      : local_(local), share_(share), group_(group) {}

  int64_t dimension() const override { return local_.dimension(); }
  torch::TensorOptions options() const override { return local_.options(); }
  std::vector<Segment> segments() const override { return local_.segments(); }
  // The same vectors in every process.
  torch::Tensor apply(const torch::Tensor& vectors) override;

 private:
  LinearOperator& local_;
  double share_;
  ProcessGroup& group_;
};

// Replaces the factors of this process's part of the data by those of all data. The shares are of
// all samples and of all loss terms, those that are here; each process calls it for the same layers
// in the same order.
void join_factors(LayerFactors& layer, double sample_share, double term_share, ProcessGroup& group);

}  // namespace curvq
