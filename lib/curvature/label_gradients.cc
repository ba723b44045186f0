#include "curvature/label_gradients.h"

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

void KfacOptions::validate() const {
  if (draws < 1) throw UsageError("draws is " + std::to_string(draws) + ", must be 1 or more");
}

torch::Tensor sample_labels(const torch::Tensor& p, torch::Generator generator) {
  const int64_t last = p.size(-1) - 1;
  const torch::Tensor sums = p.cpu().cumsum(-1);
  const torch::Tensor points =
      torch::rand({p.size(0), 1}, generator, sums.options()) * sums.narrow(-1, last, 1);
  return torch::searchsorted(sums, points, /*out_int32=*/false, /*right=*/true).clamp_max_(last);
}

void check_labels(const KfacOptions& options, int64_t terms, int64_t outputs) {
  options.validate();
  if (options.sharing == WeightSharing::kReduce && terms > 1) {
    throw UsageError(
        format("weight sharing by reduction needs one loss term a sample, these have "
               "%lld; take expansion (--weight-sharing expand)",
               static_cast<long long>(terms)));
  }
  if (options.labels != KfacLabels::kExact || terms * outputs <= kMostExactPasses) return;
  throw UsageError(
      format("exact labels would take a backward pass for each of %lld outputs and "
             "%lld loss terms of a sample, more than %lld in all; draw labels instead",
             static_cast<long long>(outputs), static_cast<long long>(terms),
             static_cast<long long>(kMostExactPasses)));
}

LabelGradients::LabelGradients(const Loss& loss, const torch::Tensor& outputs,
                               const torch::Tensor& targets, const KfacOptions& options,
                               int64_t first) {
  torch::NoGradGuard no_grad;
  const torch::Tensor f = outputs.detach();
  switch (options.labels) {
    case KfacLabels::kData:
      columns_ = loss.gradient(f, targets).unsqueeze(0);
      return;
    case KfacLabels::kSampled: {
      std::vector<torch::Tensor> samples;
      for (int64_t n = 0; n < f.size(0); ++n) {
        constexpr uint64_t kStride = 0x9E3779B97F4A7C15;  // odd: another seed for each sample
        const torch::Generator generator = make_generator(
            options.seed + kStride * static_cast<uint64_t>(options.first_sample + first + n));
        std::vector<torch::Tensor> draws;
        for (int64_t i = 0; i < options.draws; ++i)
          draws.push_back(
              loss.sampled_gradient(f.narrow(0, n, 1), targets.narrow(0, n, 1), generator));
        samples.push_back(torch::stack(draws));
      }
      columns_ = torch::cat(samples, 1);
      return;
    }
    case KfacLabels::kExact:
      columns_ = loss.hessian_columns(f, targets);
      terms_ = f.numel() / (f.size(0) * f.size(-1));
      return;
  }
}

torch::Tensor LabelGradients::of_pass(int64_t pass) const {
  const torch::Tensor column = columns_[pass / terms_];
  if (terms_ == 1) return column;
  torch::Tensor one = torch::zeros(column.sizes(), column.options());
  const std::vector<int64_t> by_term = {column.size(0), terms_, column.size(-1)};
  one.view(by_term)
      .select(1, pass % terms_)
      .copy_(column.reshape(by_term).select(1, pass % terms_));
  return one;
}

}  // namespace curvq
