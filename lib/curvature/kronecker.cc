#include "curvq/curvature/kronecker.h"

#include <cmath>

#include "curvq/core/error.h"

namespace curvq {
namespace {

bool is_diagonal(const torch::Tensor& factor) { return factor.dim() == 1; }

double trace_of(const torch::Tensor& factor) {
  return (is_diagonal(factor) ? factor : factor.diagonal()).sum(torch::kFloat64).item<double>();
}

torch::Tensor right_times(const torch::Tensor& v, const torch::Tensor& factor) {
  return is_diagonal(factor) ? v * factor : v.matmul(factor);
}

void check_factor(const torch::Tensor& f, const char* name) {
  if (!f.defined() || (f.dim() == 2 && f.size(0) != f.size(1)) || f.dim() < 1 || f.dim() > 2)
    throw UsageError(std::string("factor ") + name + " is not a square matrix");
  if (!torch::isfinite(f).all().item<bool>())
    throw NumericalError(std::string("factor ") + name + " has entries that are not finite");
}

// Cholesky factor (or root of the diagonal) of factor + shift I.
torch::Tensor damped_root(const torch::Tensor& factor, double shift, const char* name) {
  const torch::Tensor f = factor.to(torch::kFloat64);
  const auto fail = [&] {
    throw NumericalError(std::string("factor ") + name + " [" + std::to_string(f.size(0)) +
                         "] is not positive definite with " + std::to_string(shift) +
                         " added; raise the damping");
  };
  if (is_diagonal(f)) {
    const torch::Tensor damped = f + shift;
    if (!(damped > 0).all().item<bool>()) fail();
    return damped.sqrt();
  }
  const auto [root, info] =
      torch::linalg_cholesky_ex(f + shift * torch::eye(f.size(0), f.options()));
  if (info.item<int64_t>() != 0) fail();
  return root;
}

torch::Tensor solve_left(const torch::Tensor& root, const torch::Tensor& v) {
  if (is_diagonal(root)) return v / root.square().unsqueeze(1);
  return torch::cholesky_solve(v, root);
}

torch::Tensor inverse_of(const torch::Tensor& root) {
  return is_diagonal(root) ? root.square().reciprocal() : torch::cholesky_inverse(root);
}

double log_determinant_of(const torch::Tensor& root) {
  return 2 * (is_diagonal(root) ? root : root.diagonal()).log().sum().item<double>();
}

}  // namespace

void KroneckerFactors::validate() const {
  check_factor(a, "A");
  check_factor(g, "G");
  if (is_diagonal(g)) throw UsageError("factor G is not a square matrix");
}

double KroneckerFactors::trace() const { return trace_of(a) * trace_of(g); }

double KroneckerFactors::frobenius_norm() const {
  return a.norm().item<double>() * g.norm().item<double>();
}

torch::Tensor KroneckerFactors::diagonal() const {
  return torch::outer(g.diagonal(), is_diagonal(a) ? a : a.diagonal());
}

torch::Tensor KroneckerFactors::apply(const torch::Tensor& v) const {
  return right_times(g.matmul(v), a);
}

torch::Tensor KroneckerFactors::dense() const {
  return torch::kron(g, is_diagonal(a) ? torch::diag(a) : a);
}

KroneckerDamping tikhonov_damping(const KroneckerFactors& factors, double d) {
  if (!(d >= 0)) throw UsageError("damping must be 0 or more");
  const double mean_a = trace_of(factors.a) / factors.a.size(0);
  const double mean_g = trace_of(factors.g) / factors.g.size(0);
  KroneckerDamping damping;
  if (mean_a > 0 && mean_g > 0) damping.pi = std::sqrt(mean_a / mean_g);
  damping.a = damping.pi * std::sqrt(d);
  damping.g = std::sqrt(d) / damping.pi;
  return damping;
}

KroneckerInverse::KroneckerInverse(const KroneckerFactors& factors,
                                   const KroneckerDamping& damping) {
  factors.validate();
  a_ = damped_root(factors.a, damping.a, "A");
  g_ = damped_root(factors.g, damping.g, "G");
}

torch::Tensor KroneckerInverse::solve(const torch::Tensor& v) const {
  const torch::Tensor left = solve_left(g_, v.to(torch::kFloat64));
  return solve_left(a_, left.t()).t().to(v.dtype());
}

double KroneckerInverse::log_determinant() const {
  return a_.size(0) * log_determinant_of(g_) + g_.size(0) * log_determinant_of(a_);
}

torch::Tensor KroneckerInverse::a() const { return inverse_of(a_); }
torch::Tensor KroneckerInverse::g() const { return inverse_of(g_); }

double EkfacFactors::trace() const { return moments.sum(torch::kFloat64).item<double>(); }

torch::Tensor EkfacFactors::diagonal() const {
  return u_g.square().matmul(moments).matmul(u_a.square().t());
}

torch::Tensor EkfacFactors::apply(const torch::Tensor& v) const {
  return u_g.matmul(u_g.t().matmul(v).matmul(u_a) * moments).matmul(u_a.t());
}

torch::Tensor EkfacFactors::solve(const torch::Tensor& v, double d) const {
  const torch::Tensor damped = moments + d;
  if (!(damped > 0).all().item<bool>())
    throw NumericalError("a moment of ek-fac with " + std::to_string(d) +
                         " added is not positive; raise the damping");
  return u_g.matmul(u_g.t().matmul(v).matmul(u_a) / damped).matmul(u_a.t());
}

double EkfacFactors::log_determinant(double d) const {
  return (moments.to(torch::kFloat64) + d).log().sum().item<double>();
}

torch::Tensor EkfacFactors::dense() const {
  const torch::Tensor q = torch::kron(u_g, u_a);
  return (q * moments.flatten()).matmul(q.t());
}

EkfacFactors ekfac(const KroneckerFactors& factors, const torch::Tensor& inputs,
                   const torch::Tensor& gradients, int64_t terms) {
  factors.validate();
  if (is_diagonal(factors.a)) throw UsageError("ek-fac needs a matrix for the factor A");
  const bool shared = inputs.dim() == 3;
  const torch::Tensor x = shared ? inputs : inputs.unsqueeze(1);
  const torch::Tensor g = shared ? gradients : gradients.unsqueeze(-2);
  if (x.dim() != 3 || g.dim() < 3 || g.size(-2) != x.size(1) || g.size(-3) != x.size(0))
    throw UsageError("inputs [n, positions, in] and gradients [..., n, positions, out] of ek-fac " +
                     std::string("do not match"));
  if (terms < 1) throw UsageError("there must be 1 loss term or more");
  EkfacFactors result;
  result.u_a = std::get<1>(torch::linalg_eigh(factors.a));
  result.u_g = std::get<1>(torch::linalg_eigh(factors.g));
  const torch::Tensor xu = x.matmul(result.u_a);  // [n, R, in]
  const torch::Tensor gu = g.reshape({-1, x.size(0), x.size(1), g.size(-1)}).matmul(result.u_g);
  result.moments = torch::zeros({g.size(-1), x.size(2)}, gu.options());
  for (int64_t i = 0; i < gu.size(0); ++i) {
    if (x.size(1) == 1) {  // one position: the square of a product is the product of squares
      result.moments += gu[i].flatten(0, 1).square().t().matmul(xu.flatten(0, 1).square());
    } else {
      result.moments += gu[i].transpose(1, 2).matmul(xu).square().sum(0);
    }
  }
  result.moments /= static_cast<double>(terms);
  return result;
}

}  // namespace curvq
