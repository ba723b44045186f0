#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace curvq::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float swiglu_of(float gate, float up) {
  float out;
  swiglu(&gate, &up, 1, &out);
  return out;
}

TEST(SwigluTest, IsNearTheExactValue) {
  std::vector<float> gate;
  for (int i = -900000; i <= 900000; ++i) gate.push_back(static_cast<float>(i) * 1e-4f);
  for (float tiny = 1e-3f; tiny > 0; tiny /= 3) gate.insert(gate.end(), {tiny, -tiny});
  const std::vector<float> up(gate.size(), 1.25f);
  std::vector<float> out(gate.size());
  swiglu(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i], exact = g / (1 + std::exp(-g)) * 1.25;
    // Numbers below 2^-126 have fewer bits.
    const double bound = 12 * 0x1p-24 * std::fabs(exact) + 2 * 0x1p-149 + (g < -87 ? 2e-36 : 0);
    ASSERT_LE(std::fabs(out[i] - exact), bound) << gate[i];
  }
}

TEST(SwigluTest, GivesForOneWhatItGivesForMany) {
  std::vector<float> gate, up;
  for (int i = 0; i < 67; ++i) {
    gate.push_back(std::sin(static_cast<float>(i)) * 12);
    up.push_back(std::cos(static_cast<float>(i)));
  }
  std::vector<float> out(gate.size());
  swiglu(gate.data(), up.data(), 67, out.data());
  for (size_t i = 0; i < gate.size(); ++i) EXPECT_EQ(out[i], swiglu_of(gate[i], up[i]));
  swiglu(gate.data(), up.data(), 67, gate.data());  // in place
  EXPECT_EQ(gate, out);
}

TEST(SwigluTest, FollowsTheFormulaWhereNumbersEnd) {
  EXPECT_EQ(swiglu_of(kInfinity, 2), kInfinity);
  EXPECT_TRUE(std::isnan(swiglu_of(-kInfinity, 2)));  // -inf / inf
  EXPECT_TRUE(std::isnan(swiglu_of(std::nanf(""), 2)));
  EXPECT_TRUE(std::isnan(swiglu_of(1, std::nanf(""))));
  EXPECT_EQ(swiglu_of(3e38f, 1), 3e38f);
  EXPECT_EQ(swiglu_of(-3e38f, 1), 0);
  EXPECT_EQ(swiglu_of(0, 5), 0);
}

}  // namespace
}  // namespace curvq::internal
