// Decoders against logits that transformers computed for the same directories (tests/data/models).
#include "curvq/nn/decoder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "curvq/io/token_windows.h"

namespace curvq {
namespace {

const std::string kModels = std::string(CURVQ_TEST_DATA) + "/models/";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    if (std::filesystem::exists(entry.path() / "logits.safetensors"))
      names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

torch::Tensor reference_ids(const SafetensorsFile& file) {
  const TensorView& view = file.at("input_ids");
  const TokenWindows windows = load_token_windows(view.file, nullptr, {});
  torch::Tensor ids = torch::empty({windows.num_windows, windows.length}, torch::kInt64);
  for (size_t i = 0; i < windows.ids.size(); ++i) ids.data_ptr<int64_t>()[i] = windows.ids[i];
  return ids;
}

torch::Tensor reference_logits(const SafetensorsFile& file) {
  const TensorView& view = file.at("logits");
  const std::vector<float> values = view.to_f32();
  return torch::tensor(values).view(view.shape);
}

class DecoderLogits : public testing::TestWithParam<std::string> {};

TEST_P(DecoderLogits, EqualTransformers) {
  const DecoderModel model(kModels + GetParam());
  const SafetensorsFile file(kModels + GetParam() + "/logits.safetensors");
  const torch::Tensor expected = reference_logits(file), ids = reference_ids(file);
  const torch::Tensor logits = model.logits(model.hidden_states(ids));
  ASSERT_EQ(logits.sizes(), expected.sizes());
  EXPECT_LT((logits - expected).abs().max().item<float>(), 1e-4f);
}

TEST_P(DecoderLogits, StepByStepWithACacheEqualsTheWholeWindow) {
  const auto model = std::make_shared<DecoderModel>(kModels + GetParam());
  const SafetensorsFile file(kModels + GetParam() + "/logits.safetensors");
  const torch::Tensor expected = reference_logits(file)[0], ids = reference_ids(file)[0];
  DecoderSession session(model);
  std::vector<int32_t> prompt;
  const int64_t prefix = 5, length = ids.size(0);
  for (int64_t i = 0; i < prefix; ++i) prompt.push_back(ids[i].item<int32_t>());
  torch::Tensor logits = session.append(prompt);
  for (int64_t i = prefix;; ++i) {
    EXPECT_LT((logits - expected[i - 1]).abs().max().item<float>(), 1e-4f) << "position " << i - 1;
    if (i == length) break;
    logits = session.append({ids[i].item<int32_t>()});
  }
  // Two at once behind a cache: the mask is neither empty nor a square.
  DecoderSession other(model);
  other.append(prompt);
  logits = other.append({ids[prefix].item<int32_t>(), ids[prefix + 1].item<int32_t>()});
  EXPECT_LT((logits - expected[prefix + 1]).abs().max().item<float>(), 1e-4f);
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderLogits, testing::ValuesIn(model_names()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

// A model without its reference logits would drop out of the suite unseen.
TEST(DecoderModels, AllHaveReferenceLogits) {
  EXPECT_EQ(model_names(),
            (std::vector<std::string>{"llama_biases_sharded", "llama_gqa_tied", "llama_mha_untied",
                                      "llama_rope_llama3", "llama_wide_heads", "stories260K"}));
}

}  // namespace
}  // namespace curvq
