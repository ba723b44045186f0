#include "curvq/curvature/linear_operator.h"

#include <gtest/gtest.h>

#include "curvq/core/error.h"

namespace curvq {
namespace {

TEST(LinearOperator, ToDenseGivesTheMatrixBackForAnyChunk) {
  torch::manual_seed(1);
  torch::Tensor m = torch::randn({13, 13}, torch::kFloat64);
  m = m + m.t();
  DenseOperator op(m);
  for (const int64_t chunk : {1, 5, 13, 64})
    EXPECT_TRUE(torch::allclose(to_dense(op, chunk), m, 0, 1e-14)) << chunk;
}

TEST(LinearOperator, ABlockIsThatOfTheMatrix) {
  torch::manual_seed(1);
  torch::Tensor m = torch::randn({9, 9}, torch::kFloat64);
  m = m + m.t();
  DenseOperator op(m);
  BlockOperator block(op, {"b", 2, 5});
  EXPECT_EQ(block.dimension(), 5);
  EXPECT_TRUE(torch::allclose(to_dense(block, 2), m.narrow(0, 2, 5).narrow(1, 2, 5), 0, 1e-14));
}

TEST(LinearOperator, DenseRejectsWhatIsNotSquareAndWhatIsNotFinite) {
  EXPECT_THROW(DenseOperator(torch::zeros({2, 3})), UsageError);
  DenseOperator op(torch::full({2, 2}, std::numeric_limits<double>::quiet_NaN(), torch::kFloat64));
  EXPECT_THROW(op.apply(torch::ones({1, 2}, torch::kFloat64)), NumericalError);
}

}  // namespace
}  // namespace curvq
