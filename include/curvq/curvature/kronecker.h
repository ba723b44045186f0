// Kronecker-factored curvature of a layer, K-FAC and EK-FAC: damping, inverse, solve, determinant.
#pragma once

#include <torch/torch.h>

#include <string>

#include "curvq/curvature/layer_factors.h"

namespace curvq {

// The block of one layer, G (x) A for parameters [out, in(+1)] flattened row-major:
// (G (x) A) vec(V) = vec(G V A). K-FAC (Martens and Grosse 2015; Grosse and Martens 2016).
struct KroneckerFactors {
  torch::Tensor a;  // [in(+1), in(+1)] symmetric, or its diagonal [in] (an embedding)
  torch::Tensor g;  // [out, out] symmetric

  // Throws UsageError for shapes, NumericalError for entries that are not finite.
  void validate() const;
  double trace() const;                               // tr A tr G
  double frobenius_norm() const;                      // ||A||_F ||G||_F
  torch::Tensor diagonal() const;                     // [out, in(+1)], G_ii A_jj
  torch::Tensor apply(const torch::Tensor& v) const;  // G V A, v [out, in(+1)]
  torch::Tensor dense() const;                        // small layers only
};

// What is added to the factors.
struct KroneckerDamping {
  double a = 0, g = 0;  // A + a I, G + g I
  double pi = 1;
};

// Tikhonov damping factored by pi (Martens and Grosse 2015, 6.3): A + pi sqrt(d) I and
// G + sqrt(d) / pi I, pi = sqrt((tr A / dim A) / (tr G / dim G)), whose product differs from
// G (x) A + d I by the two cross terms, which this pi keeps small. pi = 1 if a trace is not
// positive. d >= 0 in the units of the block. Not G (x) A + d I: see EkfacFactors::solve for that.
KroneckerDamping tikhonov_damping(const KroneckerFactors& factors, double d);

// (G + g I)^-1 (x) (A + a I)^-1 by Cholesky factors, in float64. Immutable.
class KroneckerInverse {
 public:
  // Throws NumericalError naming factor, its size and damping if one is not positive definite.
  KroneckerInverse(const KroneckerFactors& factors, const KroneckerDamping& damping);

  torch::Tensor solve(const torch::Tensor& v) const;  // (G + g I)^-1 V (A + a I)^-1
  double log_determinant() const;  // of the damped block: dim A log|G| + dim G log|A|
  torch::Tensor a() const;         // inverses of the damped factors; a [in] if A was a diagonal
  torch::Tensor g() const;

 private:
  torch::Tensor a_, g_;  // Cholesky factors, lower; a_ may be a diagonal
};

// EK-FAC (George et al. 2018): Q diag(s) Q^T with Q = U_G (x) U_A, the eigenvectors of the factors,
// and s the second moments of the gradient in that basis instead of products of eigenvalues: the
// best diagonal in this basis, whose trace is that of the exact block.
struct EkfacFactors {
  torch::Tensor u_a;      // [in(+1), in(+1)], columns eigenvectors of A
  torch::Tensor u_g;      // [out, out]
  torch::Tensor moments;  // [out, in(+1)] s_ij = E (u_i^T dW v_j)^2

  double trace() const;
  torch::Tensor diagonal() const;                     // [out, in(+1)], of Q diag(s) Q^T
  torch::Tensor apply(const torch::Tensor& v) const;  // [out, in(+1)]
  // (Q diag(s) Q^T + d I)^-1 V: exact Tikhonov damping. Throws NumericalError unless all s + d > 0.
  torch::Tensor solve(const torch::Tensor& v, double d) const;
  double log_determinant(double d) const;
  torch::Tensor dense() const;  // small layers only
};

// The moments from inputs [n, R, in(+1)] (or [n, in]) and gradients [..., n, R, out] (or [..., n,
// out]) of loss terms as for output_factor: s = 1/terms sum over leading dimensions and n of
// (U_G^T (sum_r g x^T) U_A)^2. A must be a matrix.
EkfacFactors ekfac(const KroneckerFactors& factors, const torch::Tensor& inputs,
                   const torch::Tensor& gradients, int64_t terms);

}  // namespace curvq
