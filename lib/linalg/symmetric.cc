#include "curvq/linalg/symmetric.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "curvq/linalg/dense.h"
#include "linalg/blas.h"

namespace curvq {
namespace {

template <typename T>
int potrf(int n, T* a) {
  int info = 0;
  if constexpr (std::is_same_v<T, float>) {
    spotrf_("L", &n, a, &n, &info);
  } else {
    dpotrf_("L", &n, a, &n, &info);
  }
  return info;
}

// inverse, the identity on entry, becomes L^-1. Column panels start at their diagonal block: a
// third of the work of solving for the whole identity.
template <typename T>
void invert_lower(int n, const T* lower, T* inverse) {
  constexpr int kPanel = 128;
  const T one = 1;
  for (int begin = 0; begin < n; begin += kPanel) {
    const int rows = n - begin, cols = std::min(kPanel, rows);
    const T* a = lower + static_cast<int64_t>(begin) * n + begin;
    T* b = inverse + static_cast<int64_t>(begin) * n + begin;
    if constexpr (std::is_same_v<T, float>) {
      strsm_("L", "L", "N", "N", &rows, &cols, &one, a, &n, b, &n);
    } else {
      dtrsm_("L", "L", "N", "N", &rows, &cols, &one, a, &n, b, &n);
    }
  }
}

// Fills result.upper and returns true, or sets result.failed_column.
template <typename T>
bool factorise(const float* h, int64_t n, double damping, InverseCholesky& result) {
  std::vector<T> lower(n * n);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = h + (n - 1 - i) * n;
    T* out = lower.data() + i * n;
    for (int64_t j = 0; j < n; ++j) out[j] = row[n - 1 - j];
    out[i] += static_cast<T>(damping);
  }
  const int info = potrf<T>(static_cast<int>(n), lower.data());
  if (info != 0) {
    result.failed_column = n - info;
    return false;
  }
  std::vector<T> inverse(n * n, T{0});
  for (int64_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
  invert_lower<T>(static_cast<int>(n), lower.data(), inverse.data());
  result.upper.assign(n * n, 0.0f);
  bool finite = true;
  // inverse is column-major: L^-1[i][j] = inverse[j * n + i].
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = a; b < n; ++b) {
      const auto value = static_cast<float>(inverse[(n - 1 - b) * n + (n - 1 - a)]);
      result.upper[a * n + b] = value;
      if (finite && !std::isfinite(value)) finite = false, result.failed_column = a;
    }
  }
  if (finite) {
    result.failed_column = -1;
  } else {
    result.upper.clear();
  }
  return finite;
}

}  // namespace

void accumulate_gram(const float* x, int64_t n, int64_t k, int64_t ldx, float alpha, float* gram) {
  constexpr int64_t kPanel = 192;
  const float one = 1.0f;
  const int depth = static_cast<int>(n), lda = static_cast<int>(ldx), ldc = static_cast<int>(k);
  for (int64_t begin = 0; begin < k; begin += kPanel) {
    // In BLAS's column-major view x is [k, n]; the row-major lower triangle is its upper one.
    const int cols = static_cast<int>(std::min(kPanel, k - begin));
    const int rows = static_cast<int>(begin + cols);
    sgemm_("N", "T", &rows, &cols, &depth, &alpha, x, &lda, x + begin, &lda, &one, gram + begin * k,
           &ldc);
  }
}

void mirror_lower(float* matrix, int64_t n) {
  constexpr int64_t kTile = 64;
  for (int64_t ib = 0; ib < n; ib += kTile) {
    for (int64_t jb = 0; jb <= ib; jb += kTile) {
      for (int64_t i = ib; i < std::min(n, ib + kTile); ++i) {
        for (int64_t j = jb; j < std::min(i, jb + kTile); ++j)
          matrix[j * n + i] = matrix[i * n + j];
      }
    }
  }
}

InverseCholesky inverse_cholesky(const float* h, int64_t n, double damping) {
  InverseCholesky result;
  if (factorise<float>(h, n, damping, result)) return result;
  result.used_double = factorise<double>(h, n, damping, result);
  return result;
}

namespace {

// tr(D H D^T) = sum over column panels P of <D[:, P], 2 D[:, before P] H[before P, P] + D[:, P]
// H[P, P]>, which touches each pair of panels once. Products in T, sums in float64.
template <typename T>
double quadratic_trace_in(const float* d, int64_t rows, const float* h, int64_t n) {
  constexpr int64_t kPanel = 192;
  std::vector<T> converted;
  const T* left;
  if constexpr (std::is_same_v<T, float>) {
    left = d;
  } else {
    converted.assign(d, d + rows * n);
    left = converted.data();
  }
  std::vector<T> panel(n * kPanel), product(rows * kPanel);
  const T one = 1, zero = 0;
  double trace = 0;
  for (int64_t begin = 0; begin < n; begin += kPanel) {
    const int64_t cols = std::min(kPanel, n - begin), depth = begin + cols;
    for (int64_t i = 0; i < depth; ++i) {
      const T weight = i < begin ? 2 : 1;
      for (int64_t j = 0; j < cols; ++j) panel[i * cols + j] = weight * h[i * n + begin + j];
    }
    const int m = static_cast<int>(cols), r = static_cast<int>(rows), k = static_cast<int>(depth);
    const int ld = static_cast<int>(n);
    if constexpr (std::is_same_v<T, float>) {
      sgemm_("N", "N", &m, &r, &k, &one, panel.data(), &m, left, &ld, &zero, product.data(), &m);
    } else {
      dgemm_("N", "N", &m, &r, &k, &one, panel.data(), &m, left, &ld, &zero, product.data(), &m);
    }
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < cols; ++j) {
        sum += static_cast<double>(product[i * cols + j]) * left[i * n + begin + j];
      }
      trace += sum;
    }
  }
  return trace;
}

}  // namespace

double quadratic_trace(const float* d, int64_t rows, const float* h, int64_t n, bool cancels) {
  return cancels ? quadratic_trace_in<double>(d, rows, h, n)
                 : quadratic_trace_in<float>(d, rows, h, n);
}

double kronecker_trace(const float* d, int64_t rows, const float* g, const float* h, int64_t n) {
  std::vector<float> g_d(rows * n, 0.0f), d_h(rows * n, 0.0f), d_by_column(n * rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < n; ++j) d_by_column[j * rows + r] = d[r * n + j];
  }
  add_product_transposed(rows, n, rows, 1.0f, g, rows, d, n, g_d.data(), n);
  add_product_transposed(rows, n, n, 1.0f, d_by_column.data(), rows, h, n, d_h.data(), n);
  double trace = 0;
  for (int64_t i = 0; i < rows * n; ++i) trace += static_cast<double>(g_d[i]) * d_h[i];
  return trace;
}

}  // namespace curvq
