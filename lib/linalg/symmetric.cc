#include "curvq/linalg/symmetric.h"

#include <algorithm>
#include <type_traits>

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

template <typename T>
void invert_lower(int n, const T* lower, T* inverse) {
  const T one = 1;
  if constexpr (std::is_same_v<T, float>) {
    strsm_("L", "L", "N", "N", &n, &n, &one, lower, &n, inverse, &n);
  } else {
    dtrsm_("L", "L", "N", "N", &n, &n, &one, lower, &n, inverse, &n);
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
  // inverse is column-major: L^-1[i][j] = inverse[j * n + i].
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = a; b < n; ++b) {
      result.upper[a * n + b] = static_cast<float>(inverse[(n - 1 - b) * n + (n - 1 - a)]);
    }
  }
  result.failed_column = -1;
  return true;
}

}  // namespace

void accumulate_gram(const float* x, int64_t n, int64_t k, int64_t ldx, float alpha, float* gram) {
  constexpr int64_t kPanel = 256;
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
        for (int64_t j = jb; j < std::min(i, jb + kTile); ++j) matrix[j * n + i] = matrix[i * n + j];
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

std::vector<double> quadratic_traces(const std::vector<const float*>& d, int64_t rows, const float* h,
                                     int64_t n) {
  // tr(D H D^T) = sum over column panels P of <D[:, P], 2 D[:, :P] H[:P, P] + D[:, P] H[P, P]>,
  // which touches each pair of panels once.
  constexpr int64_t kPanel = 128;
  std::vector<double> traces(d.size(), 0.0);
  std::vector<double> panel, left(rows * n), product(rows * kPanel);
  const double one = 1.0, zero = 0.0;
  for (size_t which = 0; which < d.size(); ++which) {
    std::copy(d[which], d[which] + rows * n, left.begin());
    for (int64_t begin = 0; begin < n; begin += kPanel) {
      const int64_t cols = std::min(kPanel, n - begin), depth = begin + cols;
      panel.resize(depth * cols);
      for (int64_t i = 0; i < depth; ++i) {
        const double weight = i < begin ? 2.0 : 1.0;
        for (int64_t j = 0; j < cols; ++j) panel[i * cols + j] = weight * h[i * n + begin + j];
      }
      const int m = static_cast<int>(cols), r = static_cast<int>(rows), k = static_cast<int>(depth);
      const int ld = static_cast<int>(n);
      dgemm_("N", "N", &m, &r, &k, &one, panel.data(), &m, left.data(), &ld, &zero, product.data(), &m);
      double sum = 0.0;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) sum += product[i * cols + j] * left[i * n + begin + j];
      }
      traces[which] += sum;
    }
  }
  return traces;
}

}  // namespace curvq
