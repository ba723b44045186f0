// What tests of linear.h share: kinds of weights, memory between pages that nobody may touch, and
// products in double precision.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "curvq/kernels/linear.h"
#include "gemm_testing.h"

namespace curvq {

// `count` values that end where an unreadable page begins, behind another one.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count) : count_(count) {
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t inside = (bytes + page - 1) / page * page;
    size_ = inside + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (inside > 0) mprotect(base_ + page, inside, PROT_READ | PROT_WRITE);
    data_ = reinterpret_cast<T*>(base_ + page + inside - bytes);
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(static_cast<int64_t>(values.size())) {
    std::copy(values.begin(), values.end(), data_);
  }
  ~Guarded() { munmap(base_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  int64_t count_, size_;
  char* base_;
  T* data_;
};

inline Scheme with_scale_dtype(Scheme scheme, DType dtype) {
  scheme.scale_dtype = dtype;
  return scheme;
}

// 4-bit schemes whose groups divide k.
inline std::vector<Scheme> four_bit_schemes(int64_t k) {
  std::vector<Scheme> schemes;
  for (const Scheme& scheme :
       {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32), Scheme::int4(32, false),
        Scheme::int4(64), with_scale_dtype(Scheme::int4(64, false), DType::kBF16),
        with_scale_dtype(Scheme::int4(128), DType::kF16), Scheme::int4(128, false), Scheme::int4(0),
        Scheme::int4(0, false)}) {
    if (scheme.divides(k)) schemes.push_back(scheme);
  }
  if (k % 20 == 0) schemes.push_back(Scheme::int4(20));
  return schemes;
}

inline std::vector<Scheme> all_schemes_of(int64_t k) {
  std::vector<Scheme> schemes = four_bit_schemes(k);
  for (const Scheme& scheme :
       {Scheme::int8(0), Scheme::int8(0, false), Scheme::int8(32),
        with_scale_dtype(Scheme::int8(128, false), DType::kF16), Scheme::fp8(0), Scheme::fp8(64)}) {
    if (scheme.divides(k)) schemes.push_back(scheme);
  }
  return schemes;
}

// sum_k x w and sum_k |x w| of every output, w dequantized.
struct ExactProduct {
  std::vector<double> value, magnitude;

  ExactProduct(const QuantizedMatrix& weight, const float* x, int64_t m, int64_t ldx) {
    const int64_t n = weight.rows(), k = weight.cols();
    std::vector<float> w(n * k);
    dequantize(weight, w.data());
    value.assign(m * n, 0.0), magnitude.assign(m * n, 0.0);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t c = 0; c < k; ++c) {
          const double product = static_cast<double>(x[i * ldx + c]) * w[j * k + c];
          value[i * n + j] += product;
          magnitude[i * n + j] += std::fabs(product);
        }
      }
    }
  }
};

// What kA8 and kA15 make of x [m, k]: q s, by a plain loop over blocks; and s of every value.
struct RoundedInput {
  std::vector<float> value;
  std::vector<double> step;

  RoundedInput(const Scheme& scheme, const float* x, int64_t m, int64_t k, int largest)
      : value(m * k), step(m * k) {
    const int64_t group = scheme.group_size == 0 ? k : scheme.group_size;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t g = 0; g < k; g += group) {
        for (int64_t b = g; b < g + group; b += 32) {
          const int64_t end = std::min(b + 32, g + group);
          float amax = 0;
          for (int64_t c = b; c < end; ++c) amax = std::max(amax, std::fabs(x[i * k + c]));
          int exponent;  // the scale goes up to a number of 22 bits
          const float part = std::frexp(amax / static_cast<float>(largest), &exponent);
          const float scale = std::ldexp(std::ceil(std::ldexp(part, 22)), exponent - 22);
          for (int64_t c = b; c < end; ++c) {
            const float q = amax == 0 ? 0 : std::nearbyint(x[i * k + c] * (1 / scale));
            value[i * k + c] = q * scale;
            step[i * k + c] = scale;
          }
        }
      }
    }
  }
};

inline std::vector<float> run_linear(const QuantizedMatrix& weight, const float* x, int64_t m,
                                     InputRounding rounding = InputRounding::kNone) {
  const PrepackedWeight prepacked(weight);
  std::vector<float> out(m * weight.rows());
  linear(prepacked, LinearInput(prepacked, x, m, weight.cols(), rounding), out.data(),
         weight.rows());
  return out;
}

}  // namespace curvq
