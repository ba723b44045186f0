#include "curvq/compress/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/parallel.h"
#include "curvq/linalg/dense.h"
#include "curvq/linalg/symmetric.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CURVQ_MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CURVQ_MULTIVERSION
#endif

namespace curvq {
namespace {

// Rows are independent, so a strip of them goes through all columns while its lazy block of columns
// stays in the first-level cache (128 x 64 floats). The width is fixed so that results are.
constexpr int64_t kStrip = 64;

void check_finite(const float* h, int64_t n, const std::string& layer) {
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < n * n; ++i) {
    if (!std::isfinite(h[i]) && bad++ == 0) first = i;
  }
  if (bad > 0) {
    throw NumericalError(format(
        "%s: the hessian is not finite in %lld of %lld entries, the first at row %lld, column "
        "%lld; damping will not help, check the activations or the statistics file",
        layer.c_str(), static_cast<long long>(bad), static_cast<long long>(n * n),
        static_cast<long long>(first / n), static_cast<long long>(first % n)));
  }
}

// y[i] -= a x[i].
CURVQ_MULTIVERSION void subtract_scaled(float* y, float a, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] -= a * x[i];
}

// error[i] = (w[i] - rounded[i]) * inverse.
CURVQ_MULTIVERSION void scaled_error(float* error, const float* w, const float* rounded,
                                     float inverse, int64_t n) {
  for (int64_t i = 0; i < n; ++i) error[i] = (w[i] - rounded[i]) * inverse;
}

// Row-major [rows, groups] to [groups, rows].
template <typename T>
std::vector<T> transposed(const std::vector<T>& values, int64_t rows, int64_t groups) {
  std::vector<T> out(values.size());
  if (values.empty()) return out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) out[g * rows + r] = values[r * groups + g];
  }
  return out;
}

}  // namespace

void GptqOptions::validate() const {
  if (!(damping >= 0) || !std::isfinite(damping)) {
    throw UsageError(format("damping is %g, it must be a finite number of 0 or more", damping));
  }
  if (block_size < 1) {
    throw UsageError(
        format("block_size is %lld, it must be 1 or more", static_cast<long long>(block_size)));
  }
  if (max_damping_retries < 0)
    throw UsageError(
        format("max_damping_retries is %d, it must be 0 or more", max_damping_retries));
}

PreparedHessian prepare_hessian(const float* hessian, int64_t n, const GptqOptions& options,
                                const std::string& layer) {
  check_finite(hessian, n, layer);
  PreparedHessian out;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float d = hessian[i * n + i];
    if (d == 0) ++out.dead_inputs;
    sum += d;
  }
  out.order.resize(n);
  std::iota(out.order.begin(), out.order.end(), int64_t{0});
  if (out.dead_inputs == n) return out;
  const double mean = sum / static_cast<double>(n - out.dead_inputs);
  const auto diagonal = [&](int64_t i) {
    const float d = hessian[i * n + i];
    return d == 0 ? static_cast<float>(mean) : d;
  };
  if (options.act_order == ActOrder::kStatic) {
    std::stable_sort(out.order.begin(), out.order.end(),
                     [&](int64_t a, int64_t b) { return diagonal(a) > diagonal(b); });
  }
  std::vector<float> permuted(n * n);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = hessian + out.order[i] * n;
    for (int64_t j = 0; j < n; ++j) permuted[i * n + j] = row[out.order[j]];
    permuted[i * n + i] = diagonal(out.order[i]);
  }
  out.damping = options.damping;
  for (int retry = 0;; ++retry) {
    InverseCholesky inverse = inverse_cholesky(permuted.data(), n, out.damping * mean);
    if (inverse.failed_column < 0) {
      out.upper = std::move(inverse.upper);
      out.used_double = inverse.used_double;
      return out;
    }
    if (mean <= 0 || retry == options.max_damping_retries) {
      throw NumericalError(format(
          "%s: the hessian is finite but not positive definite (column %lld) even with damping "
          "%g; it is not a covariance of inputs, check the statistics",
          layer.c_str(), static_cast<long long>(out.order[inverse.failed_column]), out.damping));
    }
    const double next = std::max(out.damping * 10, 1e-6);
    log_info(format("%s: the hessian is singular at damping %g (column %lld), trying %g",
                    layer.c_str(), out.damping,
                    static_cast<long long>(out.order[inverse.failed_column]), next));
    out.damping = next;
  }
}

GptqResult gptq(const float* weight, const float* hessian, ScaleGrid grid,
                const GptqOptions& options, const std::string& layer) {
  options.validate();
  const int64_t rows = grid.rows, cols = grid.cols, groups = grid.groups;
  const PreparedHessian prepared = prepare_hessian(hessian, cols, options, layer);
  GptqResult result;
  result.damping = prepared.damping;
  result.dead_inputs = prepared.dead_inputs;
  if (prepared.upper.empty()) {
    result.all_dead = true;
    result.matrix = quantize_rtn(weight, std::move(grid));
    return result;
  }
  const std::vector<float> scales = transposed(grid.scales, rows, groups);
  const std::vector<int8_t> zero_points = transposed(grid.zero_points, rows, groups);
  result.matrix = QuantizedMatrix(std::move(grid));
  QuantizedMatrix& matrix = result.matrix;
  const Scheme& scheme = matrix.scheme();
  const float* upper = prepared.upper.data();
  const int64_t block = std::min(options.block_size, cols);

  parallel_for(0, (rows + kStrip - 1) / kStrip, [&](int64_t strip) {
    const int64_t first = strip * kStrip, count = std::min(kStrip, rows - first);
    std::vector<float> w(cols * kStrip), error(block * kStrip), rounded(kStrip);
    std::vector<uint8_t> codes(kStrip);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t r = 0; r < count; ++r)
        w[j * kStrip + r] = weight[(first + r) * cols + prepared.order[j]];
    }
    for (int64_t begin = 0; begin < cols; begin += block) {
      const int64_t end = std::min(cols, begin + block);
      for (int64_t j = begin; j < end; ++j) {
        const int64_t column = prepared.order[j], group = scheme.group_of(column);
        const float* u = upper + j * cols;
        float* w_j = w.data() + j * kStrip;
        float* e = error.data() + (j - begin) * kStrip;
        encode_column(scheme, w_j, scales.data() + group * rows + first,
                      zero_points.empty() ? nullptr : zero_points.data() + group * rows + first,
                      count, codes.data(), rounded.data());
        for (int64_t r = 0; r < count; ++r) matrix.set_code(first + r, column, codes[r]);
        scaled_error(e, w_j, rounded.data(), 1.0f / u[j], count);
        for (int64_t k = j + 1; k < end; ++k)
          subtract_scaled(w.data() + k * kStrip, u[k], e, count);
      }
      // Lazy update of all columns behind the block.
      add_product_transposed(cols - end, count, end - begin, -1.0f, upper + begin * cols + end,
                             cols, error.data(), kStrip, w.data() + end * kStrip, kStrip);
    }
  });
  return result;
}

}  // namespace curvq
