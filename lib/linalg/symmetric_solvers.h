// The implementations of SymmetricSolver in this library.
#pragma once

#include "curvq/linalg/symmetric_solver.h"

namespace curvq {

std::unique_ptr<SymmetricSolver> make_eigen_solver();
std::unique_ptr<SymmetricSolver> make_lapack_solver();

// Copies the lower triangle of a row-major matrix onto the upper one, or zeros there.
template <typename T>
void mirror_lower_triangle(int64_t n, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
  }
}
template <typename T>
void zero_upper_triangle(int64_t n, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) a[i * n + j] = 0;
  }
}

}  // namespace curvq
