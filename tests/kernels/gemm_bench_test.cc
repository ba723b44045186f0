#include "curvq/kernels/gemm_bench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "curvq/core/error.h"

namespace curvq {
namespace {

TEST(GemmBenchTest, ChecksAndTimesEveryKernel) {
  GemmBenchOptions options;
  options.shapes = {{1, 48, 96}, {5, 33, 64}};
  options.schemes = {Scheme::nvfp4(), Scheme::int4(32, false), Scheme::int8(0)};
  options.rounds = 1;
  options.rotated_bytes = 10000;
  const GemmBench bench = bench_gemm(options);
  EXPECT_GT(bench.limits.read_bytes, 0);
  EXPECT_GT(bench.limits.float_ops, 0);
  EXPECT_GT(bench.limits.byte_ops, 0);
  ASSERT_EQ(bench.rows.size(), 2u * (4 + 4 + 2));  // no integer inputs for INT8
  for (const GemmBenchRow& row : bench.rows) {
    SCOPED_TRACE(row.kernel + " " + row.format);
    EXPECT_GT(row.seconds, 0);
    EXPECT_GT(row.limit_ratio(), 0);
    EXPECT_NEAR(row.gflops() / row.weight_gbps(), row.intensity, 1e-9 * row.intensity);
    EXPECT_GT(row.max_error, row.kernel == "exact" ? 0 : 1e-6);
    const double most = row.kernel == "exact"  ? 1e-6
                        : row.kernel == "a15"  ? 1e-4
                        : row.kernel == "bf16" ? 0x1p-8
                                               : 2e-2;
    EXPECT_LT(row.max_error, most);
  }
}

TEST(GemmBenchTest, WrongShapesAreErrorsBeforeTheWork) {
  GemmBenchOptions options;
  options.shapes = {{1, 48, 100}};
  options.schemes = {Scheme::nvfp4()};
  EXPECT_THROW(bench_gemm(options), UsageError);
  options.shapes = {{0, 48, 96}};
  EXPECT_THROW(bench_gemm(options), UsageError);
}

}  // namespace
}  // namespace curvq
