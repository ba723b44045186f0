#include "curvature/krylov.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"

namespace curvq {
namespace {

constexpr int64_t kPanel = 1 << 16;  // columns at once

double length_of(const torch::Tensor& v) { return v.norm().item<double>(); }

double epsilon(const torch::Tensor& v) {
  return v.scalar_type() == torch::kFloat64 ? 0x1p-52 : 0x1p-23;
}

}  // namespace

KrylovBasis::KrylovBasis(LinearOperator& op, const torch::Tensor& start, int64_t capacity)
    : op_(op),
      basis_(torch::empty({capacity + 1, op.dimension()}, op.options())),
      projected_(torch::zeros({capacity, capacity}, torch::kFloat64)) {
  const double length = length_of(start);
  if (!(length > 0 && std::isfinite(length)))
    throw NumericalError("the start vector of a krylov basis is zero or not finite");
  basis_[0].copy_(start / length);
}

torch::Tensor KrylovBasis::projected() const {
  return projected_.narrow(0, 0, size_).narrow(1, 0, size_);
}

torch::Tensor KrylovBasis::images() const {
  torch::Tensor images = projected().to(basis_.options()).matmul(rows());
  if (!exhausted_) images[size_ - 1] += residual_ * basis_[size_];
  return images;
}

torch::Tensor KrylovBasis::orthogonalise(torch::Tensor& vector, int64_t count) const {
  if (count == 0) return torch::zeros({0}, torch::kFloat64);
  const torch::Tensor rows = basis_.narrow(0, 0, count);
  const torch::Tensor first = rows.mv(vector), second = torch::zeros_like(first);
  for (int64_t begin = 0; begin < vector.size(0); begin += kPanel) {
    const int64_t size = std::min(kPanel, vector.size(0) - begin);
    const torch::Tensor panel = rows.narrow(1, begin, size), part = vector.narrow(0, begin, size);
    part.addmv_(panel.t(), first, 1, -1);
    second.addmv_(panel, part);
  }
  vector.addmv_(rows.t(), second, 1, -1);
  return first.to(torch::kCPU, torch::kFloat64) + second.to(torch::kCPU, torch::kFloat64);
}

void KrylovBasis::extend() {
  torch::Tensor next = op_.apply(basis_.narrow(0, size_, 1))[0];
  ++products_;
  scale_ = std::max(scale_, length_of(next));
  const torch::Tensor column = orthogonalise(next, size_ + 1);
  projected_[size_].narrow(0, 0, size_ + 1).copy_(column);
  projected_.select(1, size_).narrow(0, 0, size_ + 1).copy_(column);
  ++size_;
  residual_ = length_of(next);
  exhausted_ = size_ == op_.dimension() ||
               residual_ <= 10 * epsilon(basis_) * std::sqrt(static_cast<double>(size_)) * scale_;
  if (exhausted_) return;
  torch::Tensor row = basis_[size_];
  torch::div_out(row, next, torch::scalar_tensor(residual_, next.options()));
}

bool KrylovBasis::restart_with(const torch::Tensor& direction) {
  residual_ = 0;
  if (size_ == op_.dimension()) return false;
  torch::Tensor next = direction / length_of(direction);
  orthogonalise(next, size_);
  const double length = length_of(next);
  if (length <= 1e-4) return false;  // a random direction is that close to a span that is not all
  next = next / length;              // with negligible probability
  orthogonalise(next, size_);
  basis_[size_].copy_(next / length_of(next));
  exhausted_ = false;
  return true;
}

void KrylovBasis::compress(const torch::Tensor& coefficients, const torch::Tensor& eigenvalues) {
  const int64_t keep = coefficients.size(0), n = op_.dimension();
  const torch::Tensor c = coefficients.to(basis_.options());
  for (int64_t first = 0; first < n; first += kPanel) {  // no second basis in memory
    torch::Tensor panel = basis_.narrow(1, first, std::min(kPanel, n - first));
    const torch::Tensor combined = c.matmul(panel.narrow(0, 0, size_));
    if (!exhausted_) panel[keep].copy_(panel[size_].clone());
    panel.narrow(0, 0, keep).copy_(combined);
  }
  projected_.zero_();
  projected_.diagonal().narrow(0, 0, keep).copy_(eigenvalues);
  size_ = keep;
}

}  // namespace curvq
