// The model of GPUs: against NVIDIA's own occupancy arithmetic where its header is at hand, and
// against figures by hand.
#include "curvq/kernels/gpu_roofline.h"

#include <gtest/gtest.h>

#include "curvq/core/error.h"
#include "kernels/cuda/w4a16_figures.h"
#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#endif

namespace curvq {
namespace {

const GpuRoofline& of(const std::vector<GpuRoofline>& all, const std::string& gpu) {
  for (const GpuRoofline& r : all)
    if (r.gpu == gpu) return r;
  throw std::logic_error(gpu);
}

TEST(GpuRoofline, DecodeOnH200ReadsTheWeightOnce) {
  const auto all = w4a16_rooflines(Scheme::nvfp4(), Float16Type::kBFloat16, 1, 28672, 8192);
  ASSERT_EQ(all.size(), 4u);
  const GpuRoofline& r = of(all, "H200");
  // 8192 x 28672 x 4.5 bits over 4.8 TB/s, and x and out.
  EXPECT_NEAR(r.dram, (8192.0 * 28672 * 0.5625 + 2 * (8192 + 28672)) / 4.8e12, 1e-8);
  EXPECT_EQ(r.bound_by, "dram") << "issue " << r.issue << " integer " << r.integer;
  EXPECT_NEAR(r.speedup, 16 / 4.5, 0.01);
  EXPECT_THROW(w4a16_rooflines(Scheme::int8(), Float16Type::kBFloat16, 1, 8, 8), UnsupportedError);
  EXPECT_THROW(w4a16_rooflines(Scheme::nvfp4(), Float16Type::kBFloat16, 0, 8, 8), UsageError);
}

TEST(GpuRoofline, PrefillIsBoundByArithmetic) {
  for (const GpuRoofline& r :
       w4a16_rooflines(Scheme::nvfp4(), Float16Type::kBFloat16, 4096, 28672, 8192)) {
    EXPECT_NE(r.bound_by, "dram") << r.gpu;
    EXPECT_LE(r.speedup, 1) << r.gpu;
    EXPECT_GE(r.blocks, 1) << r.gpu;
  }
}

#if __has_include(<cuda_occupancy.h>)
TEST(GpuRoofline, OccupancyIsThatOfNvidiasHeader) {
  struct Limits {
    const char* gpu;
    int major, minor, threads;
    size_t shared, optin;
  };
  constexpr Limits kLimits[] = {{"A100 80GB", 8, 0, 2048, 167936, 166912},
                                {"H200", 9, 0, 2048, 233472, 232448},
                                {"B200", 10, 0, 2048, 233472, 232448},
                                {"RTX 5090", 12, 0, 1536, 102400, 101376}};
  for (const int64_t m : {1, 16, 64, 4096}) {
    for (const Scheme& scheme :
         {Scheme::nvfp4(), Scheme::mxfp4(), Scheme::int4(32), Scheme::int4(128)}) {
      const auto all = w4a16_rooflines(scheme, Float16Type::kBFloat16, m, 4096, 4096);
      for (const Limits& limits : kLimits) {
        const GpuRoofline& r = of(all, limits.gpu);
        cudaOccDeviceProp device{};
        device.computeMajor = limits.major;
        device.computeMinor = limits.minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = limits.threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = limits.shared;
        device.sharedMemPerBlockOptin = limits.optin;
        device.reservedSharedMemPerBlock = 1024;
        device.numSms = 1;
        cudaOccFuncAttributes function{};
        function.maxThreadsPerBlock = 1024;
        function.numRegs = r.registers;
        function.maxDynamicSharedSizeBytes = limits.optin;
        function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        function.partitionedGCConfig = PARTITIONED_GC_OFF;
        cudaOccDeviceState state;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        ASSERT_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(
                      &result, &device, &function, &state, cuda::kThreads,
                      static_cast<size_t>(
                          cuda::w4a16_shared_bytes(internal::w4_format(scheme), false, r.tokens))),
                  CUDA_OCC_SUCCESS);
        EXPECT_EQ(r.blocks, result.activeBlocksPerMultiprocessor)
            << r.gpu << " " << scheme.describe() << " m " << m << " registers " << r.registers;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace curvq
