#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "curvq/core/error.h"
#include "linalg/lapack.h"
#include "linalg/symmetric_solvers.h"

namespace curvq {
namespace {

// LAPACK is column-major: its upper triangle is our lower one.
constexpr char kUpper[] = "U";

int lapack_size(int64_t n) {
  if (n > std::numeric_limits<int>::max())
    throw UsageError("lapack: a matrix of " + std::to_string(n) + " rows is too large");
  return static_cast<int>(n);
}

class LapackSolver : public SymmetricSolver {
 public:
  std::string name() const override { return "lapack"; }
  bool cholesky(int64_t n, float* a) override { return cholesky_of(n, a); }
  bool cholesky(int64_t n, double* a) override { return cholesky_of(n, a); }
  bool inverse(int64_t n, float* a) override { return inverse_of(n, a); }
  bool inverse(int64_t n, double* a) override { return inverse_of(n, a); }
  void eigen(int64_t n, float* a, float* values) override { eigen_of(n, a, values); }
  void eigen(int64_t n, double* a, double* values) override { eigen_of(n, a, values); }

 private:
  template <typename T>
  static bool factorise(int n, T* a) {
    int info = 0;
    if constexpr (std::is_same_v<T, float>) {
      spotrf_(kUpper, &n, a, &n, &info);
    } else {
      dpotrf_(kUpper, &n, a, &n, &info);
    }
    return info == 0;
  }

  template <typename T>
  static bool cholesky_of(int64_t n, T* a) {
    const bool positive = factorise(lapack_size(n), a);
    zero_upper_triangle(n, a);
    return positive;
  }

  template <typename T>
  static bool inverse_of(int64_t n, T* a) {
    const int size = lapack_size(n);
    if (!factorise(size, a)) return false;
    int info = 0;
    if constexpr (std::is_same_v<T, float>) {
      spotri_(kUpper, &size, a, &size, &info);
    } else {
      dpotri_(kUpper, &size, a, &size, &info);
    }
    mirror_lower_triangle(n, a);
    return info == 0;
  }

  template <typename T>
  static void eigen_of(int64_t n, T* a, T* values) {
    const int size = lapack_size(n);
    const auto fail = [&] {
      throw NumericalError("lapack: the eigenvalues of a matrix of " + std::to_string(n) +
                           " rows did not converge; check that its entries are finite");
    };
    for (int64_t i = 0; i < n; ++i) {  // syevd may loop for ever on NaN
      if (!std::all_of(a + i * n, a + i * n + i + 1, [](T v) { return std::isfinite(v); })) fail();
    }
    T work_size = 0;
    int integer_size = 0, info = 0;
    const int query = -1;
    run_eigen(size, a, values, &work_size, query, &integer_size, query, &info);
    std::vector<T> work(std::max<int64_t>(1, std::llround(work_size)));
    std::vector<int> integers(std::max(1, integer_size));
    run_eigen(size, a, values, work.data(), static_cast<int>(work.size()), integers.data(),
              static_cast<int>(integers.size()), &info);
    if (info != 0) fail();
  }

  template <typename T>
  static void run_eigen(int n, T* a, T* values, T* work, int work_size, int* integers,
                        int integer_size, int* info) {
    if constexpr (std::is_same_v<T, float>) {
      ssyevd_("V", kUpper, &n, a, &n, values, work, &work_size, integers, &integer_size, info);
    } else {
      dsyevd_("V", kUpper, &n, a, &n, values, work, &work_size, integers, &integer_size, info);
    }
  }
};

}  // namespace

std::unique_ptr<SymmetricSolver> make_lapack_solver() { return std::make_unique<LapackSolver>(); }

std::unique_ptr<SymmetricSolver> make_symmetric_solver(SymmetricLibrary library) {
  return library == SymmetricLibrary::kEigen ? make_eigen_solver() : make_lapack_solver();
}

}  // namespace curvq
