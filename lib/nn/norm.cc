#include <torch/torch.h>

#include "curvq/core/parallel.h"
#include "curvq/nn/decoder.h"
#include "nn/in_place.h"

namespace curvq {
namespace {

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  const bool plain = !at::GradMode::is_enabled() && x.scalar_type() == torch::kFloat32 &&
                     weight.scalar_type() == torch::kFloat32 && x.is_contiguous();
  if (!plain) return x * torch::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
  torch::Tensor out = torch::empty_like(x);
  const int64_t n = x.size(-1);
  const float *from = x.data_ptr<float>(), *w = weight.data_ptr<float>();
  float* to = out.data_ptr<float>();
  parallel_for(0, x.numel() / n, [&](int64_t i) {
    internal::rms_norm_row(from + i * n, n, w, static_cast<float>(epsilon), to + i * n);
  });
  return out;
}

}  // namespace

torch::Tensor Norm::forward(const torch::Tensor& x) const {
  if (!weight.defined()) return x;
  switch (kind) {
    case NormKind::kRms:
      return rms_norm(x, weight, epsilon);
    case NormKind::kRmsPlusOne:
      return rms_norm(x, weight + 1, epsilon);
    case NormKind::kLayer:
      return torch::layer_norm(x, weight.sizes(), weight, bias, epsilon);
  }
  throw std::logic_error("norm");
}

}  // namespace curvq
