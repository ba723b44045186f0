// What tests of packed products share: forced paths, random matrices.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/formats/quantized_matrix.h"
#include "curvq/kernels/gemm.h"

namespace curvq {

inline constexpr double kHalfUlp = 0x1p-24;  // largest relative error of one float32 rounding

// Sets CURVQ_CPU while it lives.
class ForcedPath {
 public:
  explicit ForcedPath(const std::string& name) {
    if (const char* old = std::getenv("CURVQ_CPU")) old_ = old;
    setenv("CURVQ_CPU", name.c_str(), 1);
  }
  ~ForcedPath() {
    if (old_.empty()) {
      unsetenv("CURVQ_CPU");
    } else {
      setenv("CURVQ_CPU", old_.c_str(), 1);
    }
  }

 private:
  std::string old_;
};

inline bool machine_has(const std::string& path) {
  const ForcedPath forced(path);
  try {
    return packed_gemm_path() == path;
  } catch (const UsageError&) {
    return false;
  }
}

inline std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}

inline QuantizedMatrix random_matrix(const Scheme& scheme, int64_t n, int64_t k, unsigned seed) {
  const std::vector<float> weight = random_values(n * k, seed);
  return quantize_rtn(weight.data(), n, k, scheme, max_abs(weight.data(), n * k));
}

// A test for each instruction set, skipped where the machine has it not.
class CpuPathTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!machine_has(GetParam())) GTEST_SKIP() << "this machine has no " << GetParam();
    forced_ = std::make_unique<ForcedPath>(GetParam());
  }

 private:
  std::unique_ptr<ForcedPath> forced_;
};

inline const auto kAllCpuPaths =
    ::testing::Values("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_vbmi", "amx");
inline std::string cpu_path_name(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

}  // namespace curvq
