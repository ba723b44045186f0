#include "curvq/curvature/layer_curvature.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "curvq/core/error.h"
#include "curvq/curvature/kfac.h"
#include "curvq/curvature/statistics.h"
#include "golden.h"

namespace curvq {
namespace {

using namespace testing;

CurvatureProvenance provenance(const std::string& data, int64_t samples) {
  CurvatureProvenance p;
  p.curvq_version = "0.1.0";
  p.model_hash = "0123456789abcdef";
  p.data_hash = {data};
  p.seed = {"0"};
  p.samples = p.loss_terms = samples;
  p.sample_shape = "[6]";
  p.dtype = "float64";
  p.loss = "cross_entropy";
  p.labels = "exact";
  p.matrix = "fisher";
  p.trace = p.diagonal = "kfac";
  return p;
}

LayerCurvatureShape shape_of(const LayerFactors& layer) {
  const int64_t a = layer.factors.a.size(0), g = layer.factors.g.size(0);
  return {layer.name, a, g, {g, a}, true};
}

class LayerCurvatureFile : public ::testing::Test {
 protected:
  LayerCurvatureFile()
      : directory_(std::filesystem::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~LayerCurvatureFile() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  std::string write(const std::string& name, const CurvatureProvenance& p,
                    const std::vector<LayerFactors>& layers) const {
    std::vector<LayerCurvatureShape> shapes;
    for (const LayerFactors& layer : layers) shapes.push_back(shape_of(layer));
    CurvatureWriter writer(path(name), false, p, shapes);
    for (const LayerFactors& layer : layers) {
      LayerCurvature one;
      one.name = layer.name;
      one.a = layer.factors.a;
      one.g = layer.factors.g;
      one.diagonal = layer.factors.diagonal();
      one.trace = layer.factors.trace();
      writer.write(one);
    }
    writer.commit();
    return path(name);
  }

  // Factors of some of the net's 24 samples, in a file.
  std::string write_part(const std::string& name, int64_t first, int64_t count) const {
    const Batch all = golden_data("mlp_tanh_ce");
    const Problem problem(
        load_torchscript(golden_directory("mlp_tanh_ce") + "logits.pt"), cross_entropy(),
        {all.inputs.narrow(0, first, count), all.targets.narrow(0, first, count)});
    return write(name, provenance(name, count),
                 kfac_factors(problem, {.labels = KfacLabels::kExact}));
  }

 private:
  std::filesystem::path directory_;
};

template <typename E>
void expect_error(const std::function<void()>& work, std::initializer_list<const char*> says) {
  try {
    work();
    FAIL() << "no error that says " << *says.begin();
  } catch (const E& error) {
    for (const char* text : says)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST_F(LayerCurvatureFile, GivesBackWhatWasWritten) {
  const torch::Generator generator = make_generator(1);
  LayerCurvature layer;
  layer.name = "block.fc";
  layer.a = torch::randn({3, 3}, generator, torch::kFloat64);
  layer.g = torch::randn({2, 2}, generator, torch::kFloat64);
  layer.diagonal = torch::randn({2, 3}, generator, torch::kFloat64);
  layer.eigenvalues = torch::tensor({3.0, -1.0}, torch::kFloat64);
  layer.trace = 0.5;
  layer.trace_stderr = 0.25;
  LayerCurvature norm;
  norm.name = "norm";
  norm.trace = 2;
  CurvatureProvenance p = provenance("d", 7);
  p.seed = {"11"};
  p.label_draws = 4;
  CurvatureWriter writer(path("s"), false, p,
                         {{"block.fc", 3, 2, {2, 3}, true, true, 2}, {"norm", 0, 0, {}, true}});
  writer.write(norm);
  writer.write(layer);
  EXPECT_FALSE(std::filesystem::exists(path("s")));  // not before it is whole
  writer.commit();

  const CurvatureFile file(path("s"));
  EXPECT_EQ(file.provenance().metadata(), p.metadata());
  ASSERT_EQ(file.layers().size(), 2u);
  const LayerCurvature read = file.read("block.fc");
  EXPECT_TRUE(torch::equal(read.a, layer.a));
  EXPECT_TRUE(torch::equal(read.g, layer.g));
  EXPECT_TRUE(torch::equal(read.diagonal, layer.diagonal));
  EXPECT_TRUE(torch::equal(read.eigenvalues, layer.eigenvalues));
  EXPECT_EQ(read.trace, 0.5);
  EXPECT_EQ(read.trace_stderr, 0.25);
  const LayerCurvature other = file.read("norm");
  EXPECT_FALSE(other.a.defined());
  EXPECT_EQ(other.trace, 2);
  EXPECT_TRUE(std::isnan(other.trace_stderr));
  expect_error<UsageError>([&] { CurvatureWriter(path("s"), false, p, {}); }, {"exists"});
}

TEST_F(LayerCurvatureFile, NothingIsLeftOfOneThatWasNotFinished) {
  { CurvatureWriter writer(path("s"), false, provenance("d", 1), {{"fc", 2, 2}}); }
  EXPECT_TRUE(std::filesystem::is_empty(path("")));
  CurvatureWriter writer(path("s"), false, provenance("d", 1), {{"fc", 0, 2}});
  LayerCurvature layer;
  layer.name = "fc";
  layer.g = torch::full({2, 2}, std::nan(""));
  expect_error<NumericalError>([&] { writer.write(layer); }, {"fc.G", "4 values"});
}

TEST_F(LayerCurvatureFile, IsRefusedForAnotherModelLayerOrShape) {
  const CurvatureFile file(write_part("s", 0, 24));
  file.require_model("net", "0123456789abcdef");
  expect_error<FormatError>([&] { file.require_model("net", "fedcba9876543210"); },
                            {"0123456789abcdef", "net has hash fedcba9876543210"});
  file.require_factors("fc2", 12, 8);
  expect_error<FormatError>([&] { file.require_factors("fc2", 11, 8); },
                            {"fc2.A", "[13, 13]", "11"});
  expect_error<FormatError>([&] { file.require_factors("fc2", 12, 9); }, {"fc2.G", "[8, 8]", "9"});
  expect_error<FormatError>([&] { file.require_factors("fc9", 12, 8); }, {"fc9"});
  expect_error<FormatError>([&] { file.read("fc9"); }, {"fc9"});
}

TEST_F(LayerCurvatureFile, RejectsFilesThatContradictThemselves) {
  const auto with = [&](std::vector<TensorInfo> tensors,
                        std::map<std::string, std::string> metadata) {
    SafetensorsWriter writer(path("bad"), tensors, metadata);
    for (const TensorInfo& tensor : tensors) {
      const std::vector<std::byte> zeros(tensor.num_bytes());
      writer.write(tensor.name, zeros.data(), tensor.num_bytes());
    }
    writer.finish();
    return path("bad");
  };
  const auto good = provenance("d", 1).metadata();
  auto changed = [&](const char* key, const char* value) {
    auto metadata = good;
    metadata[key] = value;
    return metadata;
  };
  const DType f64 = DType::kF64;
  expect_error<FormatError>([&] { CurvatureFile(with({}, {})); }, {"format"});
  expect_error<FormatError>([&] { CurvatureFile(with({}, changed("samples", "many"))); },
                            {"samples", "many"});
  expect_error<FormatError>([&] { CurvatureFile(with({}, changed("dtype", "int4"))); }, {"int4"});
  expect_error<FormatError>(
      [&] {
        CurvatureFile(with({{"fc.A", f64, {2, 3}}}, good));
      },
      {"fc.A", "[2, 3]", "square"});
  expect_error<FormatError>(
      [&] {
        CurvatureFile(with({{"fc.A", DType::kF32, {2, 2}}}, good));
      },
      {"fc.A", "F32", "F64"});
  expect_error<FormatError>(
      [&] {
        CurvatureFile(with(
            {{"fc.A", f64, {2, 2}}, {"fc.G", f64, {3, 3}}, {"fc.diagonal", f64, {2, 3}}}, good));
      },
      {"fc.diagonal", "[3, 2]"});
  expect_error<FormatError>(
      [&] {
        CurvatureFile(with({{"fc.trace", f64, {1}}}, good));
      },
      {"scalar"});
}

TEST_F(LayerCurvatureFile, MergedPartsAreOneRunOverAllData) {
  const std::string whole = write_part("whole", 0, 24);
  const std::vector<std::string> parts = {write_part("p1", 0, 5), write_part("p2", 5, 8),
                                          write_part("p3", 13, 11)};
  merge_curvature({parts[0], parts[1]}, path("half"), false);
  const CurvatureProvenance p = merge_curvature({path("half"), parts[2]}, path("merged"), false);
  EXPECT_EQ(p.samples, 24);
  EXPECT_EQ(p.data_hash, (std::vector<std::string>{"p1", "p2", "p3"}));
  const CurvatureFile merged(path("merged")), once(whole);
  for (const LayerCurvatureShape& layer : once.layers()) {
    const LayerCurvature x = merged.read(layer.name), y = once.read(layer.name);
    EXPECT_LT(relative_error(x.a, y.a), 1e-13);
    EXPECT_LT(relative_error(x.g, y.g), 1e-13);
    EXPECT_LT(relative_error(x.diagonal, y.diagonal), 1e-13);
    EXPECT_NEAR(x.trace, y.trace, 1e-13 * y.trace);
  }
}

TEST_F(LayerCurvatureFile, MergingRefusesWhatDoesNotBelongTogether) {
  const std::string a = write_part("a", 0, 5);
  const auto with = [&](const std::string& name, auto&& change) {
    CurvatureProvenance p = provenance(name, 5);
    change(p);
    const Problem problem = golden_problem("mlp_tanh_ce").first_samples(5);
    return write(name, p, kfac_factors(problem, {.labels = KfacLabels::kExact}));
  };
  const auto merge = [&](const std::string& b) { merge_curvature({a, b}, path("out"), true); };
  expect_error<UsageError>([&] { merge_curvature({a}, path("out"), true); }, {"two"});
  expect_error<FormatError>([&] { merge(a); }, {"data with hash a"});
  expect_error<FormatError>([&] { merge(with("b", [](auto& p) { p.model_hash = "ffff"; })); },
                            {"model_hash", "ffff", "0123456789abcdef"});
  expect_error<FormatError>([&] { merge(with("c", [](auto& p) { p.dtype = "float32"; })); },
                            {"dtype", "float32", "float64"});
  expect_error<FormatError>([&] { merge(with("d", [](auto& p) {
                                    p.data_hash = {"x", "a"};
                                  })); },
                            {"data with hash a"});
  expect_error<FormatError>([&] { merge(with("e", [](auto& p) { p.labels = "data"; })); },
                            {"labels"});
  expect_error<FormatError>([&] { merge(with("f", [](auto& p) { p.sample_shape = "[9]"; })); },
                            {"sample_shape"});
  const auto fewer = kfac_factors(golden_problem("mlp_tanh_ce", {.parameters = {"fc1.*"}}), {});
  expect_error<FormatError>([&] { merge(write("g", provenance("g", 24), fewer)); },
                            {"has 1 layers", "has 3"});
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST(LayerCurvature, TheHessianOfALayerLeavesTheBiasOut) {
  const torch::Tensor x = torch::randn({20, 4}, make_generator(1), torch::kFloat64);
  const torch::Tensor expected = 2 * x.t().matmul(x) / 20;
  EXPECT_LT(relative_error(input_hessian(input_factor(append_one(x), WeightSharing::kExpand), 4),
                           expected),
            1e-14);
  EXPECT_LT(relative_error(input_hessian(input_factor(x, WeightSharing::kExpand), 4), expected),
            1e-14);
  EXPECT_THROW(input_hessian(torch::zeros({4, 4}), 2), UsageError);
}

}  // namespace
}  // namespace curvq
