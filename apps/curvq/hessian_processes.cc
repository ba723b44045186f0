#include "hessian_processes.h"

#include <torch/torch.h>

namespace curvq::cli {

Processes::Processes(std::chrono::seconds timeout)
    : group_(ProcessGroup::from_environment(timeout)) {}

void Processes::split(Problem& problem) {
  if (!group_) return;
  const auto samples = static_cast<double>(problem.num_samples()),
             terms = static_cast<double>(problem.num_terms());
  range_ = part_of(problem.num_samples(), *group_);
  problem = problem.samples(range_.first, range_.count);
  sample_share_ = static_cast<double>(range_.count) / samples;
  term_share_ = static_cast<double>(problem.num_terms()) / terms;
}

void Processes::split(Batch& data, const Loss& loss) {
  if (!group_) return;
  const auto samples = static_cast<double>(data.inputs.size(0)),
             terms = static_cast<double>(loss.num_terms(data.targets));
  range_ = part_of(data.inputs.size(0), *group_);
  data = {data.inputs.narrow(0, range_.first, range_.count),
          data.targets.narrow(0, range_.first, range_.count)};
  sample_share_ = static_cast<double>(range_.count) / samples;
  term_share_ = static_cast<double>(loss.num_terms(data.targets)) / terms;
}

Problem::Gradient Processes::gradient(const Problem& problem) const {
  Problem::Gradient gradient = problem.gradient();
  if (!group_) return gradient;
  gradient.value = group_->sum(gradient.value * term_share_);
  gradient.gradient *= term_share_;
  group_->sum(gradient.gradient);
  return gradient;
}

std::unique_ptr<LinearOperator> Processes::joined(LinearOperator& local) const {
  return group_ ? std::make_unique<DistributedOperator>(local, term_share_, *group_) : nullptr;
}

void Processes::join(LayerFactors& layer) const {
  if (group_) join_factors(layer, sample_share_, term_share_, *group_);
}

}  // namespace curvq::cli
