// The CUDA kernel against the float64 reference; built with CURVQ_CUDA=ON.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "curvq/core/error.h"
#include "curvq/kernels/gemm.h"
#include "curvq/kernels/gemm_cuda.h"

namespace curvq {
namespace {

TEST(CudaGemm, EqualsTheReferenceForAllFormats) {
  std::string why;
  if (!cuda_available(&why)) GTEST_SKIP() << "NO CUDA DEVICE, KERNEL NOT RUN: " << why;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const Scheme& scheme : {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32),
                               Scheme::int4(0, false), Scheme::int8(), Scheme::fp8()}) {
    const int64_t n = 37, k = scheme.group_size == 0 ? 172 : 160;
    std::vector<float> w(n * k);
    for (float& v : w) v = normal(random);
    const QuantizedMatrix matrix = quantize_rtn(w.data(), n, k, scheme, max_abs(w.data(), n * k));
    std::vector<float> dense(n * k);
    dequantize(matrix, dense.data());
    const CudaPackedWeight device(matrix);
    for (const int64_t m : {1, 8, 9, 33}) {
      std::vector<float> x(m * k), out(m * n);
      std::vector<double> reference(m * n);
      for (float& v : x) v = normal(random);
      device.multiply(x.data(), m, out.data());
      packed_gemm_reference(matrix, x.data(), m, k, reference.data(), n);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double magnitude = 0;
          for (int64_t l = 0; l < k; ++l)
            magnitude += std::abs(double(x[i * k + l]) * dense[j * k + l]);
          ASSERT_NEAR(out[i * n + j], reference[i * n + j], (k + 2) * 0x1p-24 * magnitude)
              << scheme.describe();
        }
      }
    }
  }
}

TEST(CudaGemm, WithoutADeviceItIsAnErrorThatSaysSo) {
  std::string why;
  if (cuda_available(&why)) GTEST_SKIP() << "there is a device";
  EXPECT_FALSE(why.empty());
  const std::vector<float> w(64, 1.0f);
  const QuantizedMatrix matrix = quantize_rtn(w.data(), 2, 32, Scheme::mxfp4(), 1.0f);
  EXPECT_THROW(CudaPackedWeight{matrix}, UnsupportedError);
  EXPECT_THROW(CudaW4A16Weight(pack_w4a16(matrix, Float16Type::kBFloat16)), UnsupportedError);
  EXPECT_FALSE(cuda_block_scaled_available(&why));
  EXPECT_FALSE(why.empty());
  EXPECT_THROW(CudaW4A4Weight(pack_w4a4(matrix), Float16Type::kBFloat16), UnsupportedError);
  EXPECT_THROW(CudaW4A8Weight(pack_w4a8(matrix), Float16Type::kBFloat16), UnsupportedError);
}

}  // namespace
}  // namespace curvq
