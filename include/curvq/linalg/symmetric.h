// Symmetric positive (semi)definite matrices: Gram matrices and factors of their inverses.
#pragma once

#include <cstdint>
#include <vector>

namespace curvq {

// Adds alpha X^T X to the lower triangle of `gram`.
//   x     [n, k] float32, row stride ldx
//   gram  [k, k] float32, row-major; above the diagonal nothing is read or promised
// Costs about n k^2 (1 + 192/k) operations: column panels of the lower triangle.
void accumulate_gram(const float* x, int64_t n, int64_t k, int64_t ldx, float alpha, float* gram);

// Copies the lower triangle of a [n, n] matrix onto the upper one.
void mirror_lower(float* matrix, int64_t n);

// Result of inverse_cholesky.
struct InverseCholesky {
  std::vector<float> upper;    // [n, n] row-major, zero below the diagonal; empty on failure
  int64_t failed_column = -1;  // first column without a positive pivot or finite inverse; -1: none
  bool used_double = false;    // the float32 factorisation failed, the float64 one succeeded
};

// U upper triangular with U^T U = (H + damping I)^-1, from one Cholesky factorisation of H with
// rows and columns reversed, J H J = L L^T, so that U = J L^-1 J. float32, then float64.
//   h  [n, n] float32, symmetric, row-major, finite; not modified
// Cost n^3/3 operations for the factor and as many for the triangular inverse.
InverseCholesky inverse_cholesky(const float* h, int64_t n, double damping);

// tr(D H D^T).
//   d  [rows, n] float32;  h [n, n] float32, symmetric
//   cancels  D was chosen to lie where H is small (an error after GPTQ): all in float64. Otherwise
//            products are float32 and only their sum float64, which is right to about 1e-7 for a D
//            that knows nothing of H, at half the cost.
double quadratic_trace(const float* d, int64_t rows, const float* h, int64_t n,
                       bool cancels = true);

// tr(G D H D^T) with products in float32 and their sum in float64: to compare errors by.
//   d  [rows, n] float32;  g [rows, rows], h [n, n] float32, symmetric
double kronecker_trace(const float* d, int64_t rows, const float* g, const float* h, int64_t n);

}  // namespace curvq
