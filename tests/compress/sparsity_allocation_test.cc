#include "compress/sparsity_allocation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace curvq::internal {
namespace {

TEST(SparsityAllocation, GivesTheSharesBelowOneThreshold) {
  std::mt19937 random(1);
  std::vector<SaliencyHistogram> histograms(3);
  std::vector<std::vector<float>> layers(3);
  std::vector<float> all;
  for (size_t i = 0; i < 3; ++i) {
    std::lognormal_distribution<float> saliency(static_cast<float>(i), 1.5f);
    for (size_t k = 0; k < 20000 * (i + 1); ++k) layers[i].push_back(saliency(random));
    for (const float s : layers[i]) histograms[i].add(s);
    all.insert(all.end(), layers[i].begin(), layers[i].end());
  }
  std::sort(all.begin(), all.end());
  for (const double sparsity : {0.1, 0.5, 0.8}) {
    const float threshold = all[static_cast<size_t>(sparsity * static_cast<double>(all.size()))];
    const std::vector<double> shares = shares_below_threshold(histograms, sparsity, 1);
    double gone = 0;
    for (size_t i = 0; i < 3; ++i) {
      const auto below =
          std::count_if(layers[i].begin(), layers[i].end(), [&](float s) { return s < threshold; });
      const double size = static_cast<double>(layers[i].size());
      // A bin is 2^-7 wide; the density of a log-normal in log s is at most 1 / (1.5 sqrt(2 pi)).
      EXPECT_NEAR(shares[i], static_cast<double>(below) / size, 2 * 0.0079 * 0.27);
      gone += shares[i] * size;
    }
    EXPECT_NEAR(gone / static_cast<double>(all.size()), sparsity, 1e-9);
  }
}

TEST(SparsityAllocation, NoLayerLosesMoreThanTheMost) {
  std::vector<SaliencyHistogram> layers(2);
  for (int i = 0; i < 100; ++i) {
    layers[0].add(0);
    layers[0].add(-1);  // as a noisy diagonal may say
    layers[1].add(static_cast<float>(1 + i));
    layers[1].add(1000);
  }
  const std::vector<double> shares = shares_below_threshold(layers, 0.5, 0.8);
  EXPECT_NEAR(shares[0], 0.8, 1e-12);
  EXPECT_NEAR(shares[1], 0.2, 1e-12);
}

}  // namespace
}  // namespace curvq::internal
