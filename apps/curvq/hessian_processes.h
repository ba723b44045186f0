// The processes of `curvq hessian` that share the data, if there are several.
#pragma once

#include <chrono>
#include <memory>

#include "curvq/curvature/process_group.h"

namespace curvq::cli {

// What this process has of the data, and how its results become those of all. Alone, it has all.
class Processes {
 public:
  // As ProcessGroup::from_environment().
  explicit Processes(std::chrono::seconds timeout);

  explicit operator bool() const { return group_ != nullptr; }
  bool first() const { return !group_ || group_->rank() == 0; }
  int size() const { return group_ ? group_->size() : 1; }
  // Of this process's part in all data.
  int64_t first_sample() const { return range_.first; }

  // Leave this process its part of the samples.
  void split(Problem& problem);
  void split(Batch& data, const Loss& loss);

  Problem::Gradient gradient(const Problem& problem) const;
  // Null where this process is alone.
  std::unique_ptr<LinearOperator> joined(LinearOperator& local) const;
  void join(LayerFactors& layer) const;

 private:
  std::unique_ptr<ProcessGroup> group_;
  SampleRange range_;
  double sample_share_ = 1, term_share_ = 1;
};

}  // namespace curvq::cli
