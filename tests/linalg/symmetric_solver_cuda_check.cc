// cuSOLVER against the same checks as the other libraries; built with CURVQ_CUDA=ON.
#include "curvq/linalg/symmetric_solver_cuda.h"
#include "linalg/symmetric_solver_checks.h"

namespace curvq {
namespace {

TEST(CudaSolver, FactorisesInvertsAndDiagonalises) {
  std::string why;
  if (!cusolver_available(&why)) GTEST_SKIP() << "NO CUDA DEVICE, CUSOLVER NOT RUN: " << why;
  const auto solver = make_cuda_symmetric_solver();
  check_solver<float>(*solver);
  check_solver<double>(*solver);
}

TEST(CudaSolver, WithoutADeviceItSaysSo) {
  if (cusolver_available()) GTEST_SKIP() << "there is a device";
  EXPECT_THROW(make_cuda_symmetric_solver(), ResourceError);
}

}  // namespace
}  // namespace curvq
