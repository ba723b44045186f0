#include "curvq/nn/script_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "curvq/core/error.h"

namespace curvq {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Tensors = std::vector<std::pair<std::string, torch::Tensor>>;

torch::jit::Module module_of(const std::string& code, const Tensors& parameters,
                             const Tensors& buffers = {}) {
  torch::jit::Module module("Net");
  for (const auto& [name, value] : parameters) module.register_parameter(name, value, false);
  for (const auto& [name, value] : buffers) module.register_buffer(name, value);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(code + "\n");
  return module;
}

class ScriptModelTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "script_model_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  ScriptModel saved(const torch::jit::Module& module) const {
    module.save(path("net.pt"));
    return ScriptModel(path("net.pt"));
  }

  // The one layer of forward(x) = `expression`, with a parameter w.
  ScriptLayer layer_of(const std::string& expression, const torch::Tensor& w) const {
    const ScriptModel model =
        saved(module_of("def forward(self, x):\n  return " + expression, {{"w", w}}));
    EXPECT_EQ(model.layers().size(), 1u) << expression;
    return model.layers().empty() ? ScriptLayer{} : model.layers().front();
  }

  std::string directory_;
};

TEST_F(ScriptModelTest, FindsLinearLayersInAllTheirForms) {
  for (const char* form :
       {"torch.linear(x, self.w)", "torch.matmul(x, self.w.t())",
        "torch.mm(x, torch.transpose(self.w, 1, 0))", "torch.matmul(x, self.w.transpose(-2, -1))",
        "torch.addmm(torch.zeros(3), x, self.w.t())"}) {
    const ScriptLayer layer = layer_of(form, torch::randn({3, 4}));
    EXPECT_EQ(layer.name, "w") << form;
    EXPECT_EQ(layer.obstacle, "") << form;
    EXPECT_THAT((std::vector{layer.rows, layer.cols}), ElementsAre(3, 4)) << form;
  }
}

TEST_F(ScriptModelTest, FindsConvolutions) {
  const ScriptLayer flat =
      layer_of("torch.conv1d(x, self.w, None, [2], [1])", torch::randn({6, 4, 3}));
  EXPECT_EQ(flat.op, "conv1d");
  EXPECT_THAT((std::vector{flat.rows, flat.cols, flat.groups}), ElementsAre(6, 12, 1));
  EXPECT_THAT(flat.stride, ElementsAre(2));
  EXPECT_EQ(flat.obstacle, "");
  const ScriptLayer image =
      layer_of("torch.conv2d(x, self.w, stride=[2, 1])", torch::randn({6, 4, 3, 2}));
  EXPECT_THAT((std::vector{image.rows, image.cols}), ElementsAre(6, 24));
  EXPECT_THAT(image.stride, ElementsAre(2, 1));
  EXPECT_EQ(image.obstacle, "");
}

TEST_F(ScriptModelTest, NamesWhatIsInTheWay) {
  EXPECT_EQ(layer_of("torch.conv2d(x, self.w, groups=2)", torch::randn({6, 2, 3, 3})).obstacle,
            "a convolution of 2 groups");
  EXPECT_EQ(layer_of("torch.conv_transpose1d(x, self.w)", torch::randn({6, 2, 3})).obstacle,
            "a transposed convolution");
  EXPECT_EQ(layer_of("torch.conv3d(x, self.w)", torch::randn({2, 2, 1, 1, 1})).obstacle,
            "a 3-D convolution");
  EXPECT_EQ(layer_of("torch.matmul(x, self.w)", torch::randn({4, 3})).obstacle,
            "its weight is stored as [in, out]");
  EXPECT_EQ(layer_of("torch.matmul(x, self.w.t()) + self.w.sum()", torch::randn({4, 3})).obstacle,
            "its weight is also used by aten::sum");
  const ScriptModel buffer =
      saved(module_of("def forward(self, x):\n  return torch.matmul(x, self.b.t())", {},
                      {{"b", torch::randn({4, 3})}}));
  ASSERT_EQ(buffer.layers().size(), 1u);
  EXPECT_EQ(buffer.layers()[0].obstacle, "its weight is a buffer, not a parameter");
}

TEST_F(ScriptModelTest, TiedWeightsAreOneTensor) {
  const torch::Tensor w = torch::randn({5, 4});
  const ScriptModel model = saved(module_of(R"(
def forward(self, x):
  return torch.matmul(torch.embedding(self.embedding, x), self.head.t()))",
                                            {{"embedding", w}, {"head", w}}));
  ASSERT_EQ(model.tensors().size(), 1u);
  ASSERT_EQ(model.layers().size(), 1u);
  EXPECT_EQ(model.layers()[0].weight, "embedding");
  EXPECT_THAT(model.layers()[0].obstacle, HasSubstr("also used by aten::embedding"));
}

TEST_F(ScriptModelTest, GoesThroughSubmodulesAndControlFlow) {
  torch::jit::Module outer("Outer");
  const torch::jit::Module inner = module_of(R"(
def forward(self, x):
  if x.size(0) > 2:
    y = torch.linear(x, self.weight)
  else:
    y = x
    for i in range(2):
      y = torch.linear(y, self.other)
  return y)",
                                             {{"weight", torch::eye(4)}, {"other", torch::eye(4)}});
  outer.register_module("inner", inner);
  outer.define(
      "def forward(self, x, scale: float = 2.0):\n  return self.inner.forward(x) * scale\n");
  const ScriptModel model = saved(outer);
  ASSERT_EQ(model.layers().size(), 2u);
  EXPECT_EQ(model.layers()[0].name, "inner");
  EXPECT_EQ(model.layers()[1].name, "inner.other");
  const torch::Tensor x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal(model.forward(x.to(torch::kFloat64)), x * 2));
}

TEST_F(ScriptModelTest, WritesTheFileAgainWithOtherWeights) {
  const torch::jit::Module module =
      module_of("def forward(self, x):\n  self.count += 1\n  return torch.matmul(x, self.w.t())",
                {{"w", torch::randn({3, 4}).to(torch::kBFloat16)}}, {{"count", torch::zeros({1})}});
  module.save(path("net.pt"), {{"labels.txt", "cat dog"}});
  const ScriptModel model(path("net.pt"));
  model.forward(torch::randn({2, 4}));  // changes its buffer, but not the file's
  const torch::Tensor w = torch::randn({12});
  model.write(path("again.pt"), {{"w", w}});

  torch::jit::ExtraFilesMap extra = {{"labels.txt", ""}};
  const torch::jit::Module again = torch::jit::load(path("again.pt"), torch::kCPU, extra);
  EXPECT_EQ(extra["labels.txt"], "cat dog");
  EXPECT_TRUE(again.is_training());
  EXPECT_EQ(again.attr("count").toTensor().item<float>(), 0);
  EXPECT_TRUE(torch::equal(again.attr("w").toTensor(), w.view({3, 4}).to(torch::kBFloat16)));
}

template <typename Error, typename Fn>
void expect_error(Fn&& fn, const std::string& text) {
  try {
    fn();
    FAIL() << "nothing thrown, want " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST_F(ScriptModelTest, RefusesWhatCannotBeCalledWithX) {
  const ScriptModel two = saved(module_of("def forward(self, x, y):\n  return x + y", {}));
  expect_error<UnsupportedError>([&] { two.forward(torch::ones({1})); }, "with x alone");
  const ScriptModel none = saved(module_of("def other(self, x):\n  return x", {}));
  EXPECT_EQ(none.signature(), "");
  expect_error<UnsupportedError>([&] { none.forward(torch::ones({1})); }, "no forward");
  const ScriptModel pair = saved(module_of("def forward(self, x):\n  return (x, x)", {}));
  expect_error<UnsupportedError>([&] { pair.forward(torch::ones({1})); }, "one tensor");
  const ScriptModel linear = saved(module_of(
      "def forward(self, x):\n  return torch.matmul(x, self.w.t())", {{"w", torch::eye(4)}}));
  expect_error<UnsupportedError>([&] { linear.forward(torch::ones({2, 3})); }, "net.pt");
}

TEST_F(ScriptModelTest, RefusesOtherFiles) {
  expect_error<UsageError>([&] { ScriptModel(path("none.pt")); }, "no such file");
  std::ofstream(path("text.pt")) << "no zip";
  expect_error<FormatError>([&] { ScriptModel(path("text.pt")); }, "not a TorchScript file");
  module_of("def forward(self, x):\n  return x", {{"w", torch::ones({999})}}).save(path("net.pt"));
  for (const double share : {0.1, 0.5, 0.9, 0.99}) {
    std::filesystem::copy_file(path("net.pt"), path("cut.pt"),
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(
        path("cut.pt"),
        static_cast<uintmax_t>(share *
                               static_cast<double>(std::filesystem::file_size(path("net.pt")))));
    expect_error<FormatError>([&] { ScriptModel(path("cut.pt")); }, "not a TorchScript file");
  }
}

}  // namespace
}  // namespace curvq
