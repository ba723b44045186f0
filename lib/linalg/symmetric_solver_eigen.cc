#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>

#include "curvq/core/error.h"
#include "linalg/symmetric_solvers.h"

namespace curvq {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using MatrixMap = Eigen::Map<Matrix<T>>;

class EigenSolver : public SymmetricSolver {
 public:
  std::string name() const override { return "eigen"; }
  bool cholesky(int64_t n, float* a) override { return cholesky_of(n, a); }
  bool cholesky(int64_t n, double* a) override { return cholesky_of(n, a); }
  bool inverse(int64_t n, float* a) override { return inverse_of(n, a); }
  bool inverse(int64_t n, double* a) override { return inverse_of(n, a); }
  void eigen(int64_t n, float* a, float* values) override { eigen_of(n, a, values); }
  void eigen(int64_t n, double* a, double* values) override { eigen_of(n, a, values); }

 private:
  // Eigen takes a pivot that is NaN for a positive one.
  template <typename LLT>
  static bool succeeded(const LLT& llt) {
    return llt.info() == Eigen::Success && llt.matrixLLT().diagonal().allFinite();
  }

  template <typename T>
  static bool cholesky_of(int64_t n, T* a) {
    MatrixMap<T> matrix(a, n, n);
    const Eigen::LLT<Matrix<T>, Eigen::Lower> llt(matrix);
    matrix = llt.matrixL();
    return succeeded(llt);
  }

  template <typename T>
  static bool inverse_of(int64_t n, T* a) {
    MatrixMap<T> matrix(a, n, n);
    const Eigen::LLT<Matrix<T>, Eigen::Lower> llt(matrix);
    if (!succeeded(llt)) return false;
    matrix = llt.solve(Matrix<T>::Identity(n, n));
    const Matrix<T> lower = matrix;  // equal to rounding to its transpose; made so exactly
    matrix.template triangularView<Eigen::StrictlyUpper>() = lower.transpose();
    return true;
  }

  template <typename T>
  static void eigen_of(int64_t n, T* a, T* values) {
    MatrixMap<T> matrix(a, n, n);
    const Eigen::SelfAdjointEigenSolver<Matrix<T>> solver(matrix);
    if (solver.info() != Eigen::Success || !solver.eigenvalues().allFinite())
      throw NumericalError("eigen: the eigenvalues of a matrix of " + std::to_string(n) +
                           " rows did not converge; check that its entries are finite");
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>(values, n) = solver.eigenvalues();
    matrix = solver.eigenvectors().transpose();
  }
};

}  // namespace

std::unique_ptr<SymmetricSolver> make_eigen_solver() { return std::make_unique<EigenSolver>(); }

}  // namespace curvq
