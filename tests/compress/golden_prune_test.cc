// Errors of pruned layers against those that llm-compressor reached (tests/data/layers).
#include <gtest/gtest.h>

#include <filesystem>

#include "curvq/compress/prune.h"
#include "curvq/io/json.h"
#include "curvq/io/safetensors.h"
#include "curvq/linalg/symmetric.h"

namespace curvq {
namespace {

class GoldenPruning : public testing::Test {
 protected:
  // E of every layer over the peer's.
  std::vector<double> ratios(PruneMethod method, const std::string& pattern,
                             const std::string& peer, int sweeps) {
    std::vector<double> out;
    for (const auto& [name, errors] : peers_.items()) {
      const TensorView& tensor = weights_.at(name + ".weight");
      const std::vector<float> w = tensor.to_f32(), h = stats_.at(name + ".hessian").to_f32();
      PruneProblem problem;
      problem.name = name;
      problem.weight = w.data();
      problem.rows = tensor.shape[0];
      problem.cols = tensor.shape[1];
      problem.hessian = h.data();
      PruneOptions options;
      options.method = method;
      options.sweeps = sweeps;
      if (pattern != "50") options.pattern = SparsityPattern::parse(pattern);
      std::vector<float> d = prune(problem, options).matrix.weight;
      for (size_t i = 0; i < d.size(); ++i) d[i] = w[i] - d[i];
      const double whole = quadratic_trace(w.data(), problem.rows, h.data(), problem.cols);
      const double lost = quadratic_trace(d.data(), problem.rows, h.data(), problem.cols);
      out.push_back(lost / whole / errors.at(peer).get<double>());
    }
    return out;
  }

  const std::string data_ = std::string(CURVQ_TEST_DATA) + "/layers/";
  const SafetensorsFile weights_{data_ + "weights.safetensors"};
  const SafetensorsFile stats_{data_ + "stats.safetensors"};
  const Json peers_ = read_json_file(data_ + "peer-errors.json");
};

TEST_F(GoldenPruning, ObsReachesSparseGptsErrors) {
  // The peer takes out one weight a block more than the share says: half a percent of the smallest
  // layer's.
  for (const double ratio : ratios(PruneMethod::kObs, "50", "sgpt-50", 0))
    EXPECT_NEAR(ratio, 1, 0.005);
  for (const double ratio : ratios(PruneMethod::kObs, "2:4", "sgpt-2of4", 0))
    EXPECT_NEAR(ratio, 1, 0.001);
}

TEST_F(GoldenPruning, WandaReachesWandasErrors) {
  for (const double ratio : ratios(PruneMethod::kWanda, "50", "wanda-50", 0))
    EXPECT_NEAR(ratio, 1, 0.001);
  for (const double ratio : ratios(PruneMethod::kWanda, "2:4", "wanda-2of4", 0))
    EXPECT_NEAR(ratio, 1, 0.001);
}

TEST_F(GoldenPruning, SweepsGoFarBelowSparseGpt) {
  // The least-squares fit of SparseGPT's own mask is at .61 to .87 of its error.
  for (const double ratio : ratios(PruneMethod::kObs, "50", "sgpt-50", 2)) EXPECT_LT(ratio, 0.75);
  for (const double ratio : ratios(PruneMethod::kObs, "2:4", "sgpt-2of4", 2))
    EXPECT_LT(ratio, 0.87);
}

}  // namespace
}  // namespace curvq
