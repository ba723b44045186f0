#include "curvq/curvature/memory.h"

#include <gtest/gtest.h>

#include "curvature/golden.h"
#include "curvq/core/error.h"
#include "curvq/io/safetensors.h"

namespace curvq {
namespace {

constexpr Curvature kAll[] = {Curvature::kHessian, Curvature::kGaussNewton,
                              Curvature::kEmpiricalFisher};

TEST(MemoryWatch, SeesTensorsComeAndGo) {
  const MemoryWatch watch;
  {
    const torch::Tensor a = torch::zeros({1000}, torch::kFloat64);
    EXPECT_EQ(watch.live_bytes(), 8000);
    const torch::Tensor b = torch::zeros({500}, torch::kFloat32);
    EXPECT_EQ(watch.live_bytes(), 10000);
  }
  EXPECT_EQ(watch.live_bytes(), 0);
  EXPECT_EQ(watch.peak_bytes(), 10000);
}

int64_t peak_of_product(const Problem& problem, Curvature curvature, int64_t kept_graphs) {
  const torch::Tensor vector = torch::ones({1, problem.dimension()}, problem.options());
  const MemoryWatch watch;
  CurvatureOperator op(problem, curvature, {.kept_graphs = kept_graphs});
  op.apply(vector);
  return watch.peak_bytes();
}

void expect_within_a_fifth(const Problem& problem, const std::string& what) {
  for (const Curvature curvature : kAll) {
    for (const int64_t kept : {0, 1}) {
      const MemoryModel model = measure_memory(problem, curvature, {.kept_graphs = kept});
      for (const int64_t samples : {5, 12}) {
        const auto predicted =
            static_cast<double>(model.total_bytes(samples) - model.weights_bytes -
                                model.vectors_bytes / 2);  // the vector is there beforehand
        const auto peak =
            static_cast<double>(peak_of_product(problem.first_samples(samples), curvature, kept));
        EXPECT_NEAR(predicted / peak, 1, 0.2) << what << ", " << curvature_name(curvature) << ", "
                                              << samples << " samples, " << kept << " graphs kept";
      }
    }
  }
}

Problem digits(const std::string& net) {
  const std::string directory = std::string(CURVQ_TEST_DATA) + "/digits/";
  const SafetensorsFile file(directory + "data.safetensors");
  return Problem(
      load_torchscript(directory + "digits_" + net + "_script.pt"), cross_entropy(),
      {to_torch(file.at("x")).narrow(0, 0, 200), to_torch(file.at("y")).narrow(0, 0, 200)});
}

Problem stories(bool checkpoint) {
  const DecoderModel model(std::string(CURVQ_TEST_DATA) + "/models/stories260K");
  const torch::Tensor ids = torch::arange(12 * 64, torch::kInt64).view({12, 64}).remainder(500);
  return Problem(load_decoder(model, {.checkpoint = checkpoint}), cross_entropy(),
                 {ids, ids.roll(-1, 1)});
}

TEST(MemoryModel, PredictsThePeakOfAProductToAFifth) {
  expect_within_a_fifth(digits("mlp"), "mlp");
  expect_within_a_fifth(digits("cnn"), "cnn");
  expect_within_a_fifth(stories(false), "stories260K");
  expect_within_a_fifth(stories(true), "stories260K, blocks computed again");
}

TEST(MemoryModel, ComputingBlocksAgainSavesMemory) {
  // Five blocks: of their graphs one is there at a time.
  const Problem kept = stories(false), again = stories(true);
  EXPECT_LT(2 * peak_of_product(again, Curvature::kHessian, 0),
            peak_of_product(kept, Curvature::kHessian, 0));
}

TEST(MemoryModel, ChunkThatFits) {
  const Problem problem = digits("mlp");
  const MemoryModel model = measure_memory(problem, Curvature::kHessian);
  for (const int64_t samples : {1, 17, 150}) {
    EXPECT_EQ(model.largest_chunk(model.total_bytes(samples) + 1, 200), samples);
  }
  EXPECT_EQ(model.largest_chunk(int64_t{1} << 40, 200), 200);
  EXPECT_THROW(model.largest_chunk(model.total_bytes(1) - 1, 200), ResourceError);
}

}  // namespace
}  // namespace curvq
