#include "curvq/compress/quantize_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>

#include "compress/script_hessians.h"
#include "curvq/core/error.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/nn/script_model.h"

namespace curvq {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// conv over 1-D signals, then a layer that is used twice, and one that only large inputs reach.
torch::jit::Module small_net() {
  torch::manual_seed(3);
  torch::jit::Module module("Net");
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"conv", {16, 4, 4}}, {"twice", {16, 16}}, {"rare", {8, 16}}, {"grouped", {16, 8, 1}}}) {
    module.register_parameter(name, torch::randn(shape) / 4, false);
  }
  module.register_buffer("mean", torch::zeros({4, 1}));
  module.define(R"(
def forward(self, x):
  h = torch.relu(torch.conv1d(x - self.mean, self.conv, None, [2], [1]))
  h = torch.conv1d(h, self.grouped, None, [1], [0], [1], 2).transpose(1, 2)
  h = torch.matmul(torch.matmul(h, self.twice.t()), self.twice.t())
  if bool(h.max() > 1e6):
    h = torch.linear(h, self.rare)
  return h
)");
  return module;
}

class QuantizeScriptTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "quantize_script_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
    small_net().save(directory_ + "/net.pt");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  QuantizeReport run(QuantizeOptions options) const {
    options.out = directory_ + "/out";
    options.overwrite = true;
    return quantize_script(directory_ + "/net.pt", x_, options,
                           [](const QuantizeReport&) { return std::string("{}"); });
  }

  static torch::Tensor hessian_of(const torch::Tensor& rows) {
    const torch::Tensor flat = rows.reshape({-1, rows.size(-1)}).to(torch::kFloat64);
    return 2.0 / static_cast<double>(flat.size(0)) * flat.t().matmul(flat);
  }

  std::string directory_;
  const torch::Tensor x_ = torch::randn({300, 4, 12});
};

// The rows that a layer multiplies with, computed by hand.
TEST_F(QuantizeScriptTest, HessiansAreThoseOfAllInputs) {
  const ScriptModel model(directory_ + "/net.pt");
  std::vector<const ScriptLayer*> layers;
  for (const ScriptLayer& layer : model.layers()) {
    if (layer.obstacle.empty()) layers.push_back(&layer);
  }
  const auto hessians = internal::script_hessians(model, layers, x_);
  const auto weight = [&](const char* name) { return model.find(name)->value.detach(); };

  const torch::Tensor padded = torch::constant_pad_nd(x_, {1, 1});
  const torch::Tensor patches = padded.unfold(2, 4, 2).permute({0, 2, 1, 3}).flatten(2);
  const torch::Tensor convolved = torch::relu(patches.matmul(weight("conv").flatten(1).t()));
  const torch::Tensor grouped = torch::conv1d(convolved.transpose(1, 2), weight("grouped"), {}, 1,
                                              torch::IntArrayRef{0}, 1, 2)
                                    .transpose(1, 2);
  const torch::Tensor once = grouped.matmul(weight("twice").t());
  const std::map<std::string, torch::Tensor> expected = {
      {"conv", hessian_of(patches)},
      {"twice", hessian_of(torch::cat({grouped, once}, 0))},
      {"rare", torch::zeros({16, 16}, torch::kFloat64)}};
  ASSERT_EQ(hessians.size(), expected.size());
  for (const auto& [name, wanted] : expected) {
    const torch::Tensor found =
        torch::tensor(hessians.at(name)).view(wanted.sizes()).to(torch::kFloat64);
    // Sums of about 2,000 float32 products, and forward passes in another order.
    EXPECT_LT((found - wanted).abs().max().item<double>(),
              1e-5 * (1 + wanted.abs().max().item<double>()))
        << name;
  }
  EXPECT_THAT(internal::call_order(model, layers, x_), ElementsAre("conv", "twice", "rare"));
}

TEST_F(QuantizeScriptTest, WritesBothFormsOfTheSameWeights) {
  QuantizeOptions options;
  options.plan.scheme = Scheme::nvfp4();
  const QuantizeReport report = run(options);
  ASSERT_EQ(report.layers.size(), 3u);
  EXPECT_TRUE(report.layers[2].rounded_to_nearest);
  EXPECT_THAT(report.layers[2].note, HasSubstr("rounded to nearest"));
  ASSERT_EQ(report.kept.size(), 1u);
  EXPECT_EQ(report.kept[0].name, "grouped");
  EXPECT_EQ(report.kept[0].reason, "a convolution of 2 groups");

  const ScriptModel written(directory_ + "/out/model.pt"), original(directory_ + "/net.pt");
  const Checkpoint packed(directory_ + "/out");
  for (const char* name : {"conv", "twice", "rare"}) {
    const torch::Tensor w = written.find(name)->value.detach();
    std::vector<float> values(w.numel());
    dequantize(compressed_tensors_unpack(packed, name, Scheme::nvfp4()), values.data());
    EXPECT_TRUE(torch::equal(w.flatten(), torch::tensor(values))) << name;
    EXPECT_FALSE(torch::equal(w, original.find(name)->value)) << name;
  }
  EXPECT_TRUE(torch::equal(written.find("grouped")->value, original.find("grouped")->value));
  EXPECT_NE(packed.find("grouped"), nullptr);
  EXPECT_NE(packed.find("mean"), nullptr);
  // Outputs are those of the module with these weights.
  EXPECT_GT((written.forward(x_) - original.forward(x_)).abs().max().item<float>(), 0);
}

// With the first layer kept, its output is that of the original, and so are the second's inputs.
TEST_F(QuantizeScriptTest, SequentialCaptureSeesTheLayersBefore) {
  QuantizeOptions options;
  options.plan.scheme = Scheme::int4(16);
  const auto error = [&](Capture capture, bool keep_first) {
    options.capture = capture;
    options.plan.ignore = {};
    if (keep_first) options.plan.ignore = {"conv"};
    for (const LayerResult& layer : run(options).layers) {
      if (layer.name == "twice") return layer.relative_error;
    }
    return -1.0;
  };
  // "twice" is used twice, so that its own rounding changes its second input in neither.
  EXPECT_EQ(error(Capture::kSequential, true), error(Capture::kFloat, true));
  EXPECT_EQ(error(Capture::kFloat, false), error(Capture::kFloat, true));
  EXPECT_NE(error(Capture::kSequential, false), error(Capture::kFloat, false));
}

TEST_F(QuantizeScriptTest, KeepsThePrecisionOfTheFile) {
  torch::jit::Module module = small_net();
  module.to(torch::kFloat64);
  module.save(directory_ + "/net.pt");
  QuantizeOptions options;
  options.plan.scheme = Scheme::int8();
  run(options);
  const ScriptModel written(directory_ + "/out/model.pt");
  for (const ScriptTensor& tensor : written.tensors())
    EXPECT_EQ(tensor.value.scalar_type(), torch::kFloat64) << tensor.name;
}

TEST_F(QuantizeScriptTest, RefusesBeforeAnythingIsWritten) {
  QuantizeOptions options;
  options.plan.scheme = Scheme::nvfp4();
  options.token_weights = true;
  EXPECT_THROW(run(options), UsageError);
  options.token_weights = false;
  options.plan.ignore = {"nothing"};
  EXPECT_THROW(run(options), UsageError);
  options.plan.ignore = {};
  options.max_memory_bytes = 100;
  EXPECT_THROW(run(options), ResourceError);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/out"));
}

}  // namespace
}  // namespace curvq
