// Dense factorisations of symmetric matrices behind one interface: Eigen, LAPACK, cuSOLVER.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace curvq {

// One library that factorises. Matrices are [n, n] row-major in host memory, contiguous; only their
// lower triangle is read. An object may be used by one thread at a time.
class SymmetricSolver {
 public:
  virtual ~SymmetricSolver() = default;
  virtual std::string name() const = 0;

  // a <- L, lower triangular with L L^T = a, zero above the diagonal. False, with a undefined, if a
  // is not positive definite to working precision.
  virtual bool cholesky(int64_t n, float* a) = 0;
  virtual bool cholesky(int64_t n, double* a) = 0;
  // a <- a^-1 by its Cholesky factor, both triangles. False as above.
  virtual bool inverse(int64_t n, float* a) = 0;
  virtual bool inverse(int64_t n, double* a) = 0;
  // values [n] <- eigenvalues, ascending; a <- orthonormal eigenvectors as rows, of arbitrary sign.
  // Throws NumericalError if the iteration does not converge, as for entries that are not finite.
  virtual void eigen(int64_t n, float* a, float* values) = 0;
  virtual void eigen(int64_t n, double* a, double* values) = 0;
};

enum class SymmetricLibrary {
  kEigen,
  kLapack,  // the one inside LibTorch; the faster one
};

std::unique_ptr<SymmetricSolver> make_symmetric_solver(
    SymmetricLibrary library = SymmetricLibrary::kLapack);

}  // namespace curvq
