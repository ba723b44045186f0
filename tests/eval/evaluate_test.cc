// Perplexity and KL against values computed in float64 from transformers' logits.
#include "curvq/eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/io/safetensors.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

const std::string kModels = std::string(CURVQ_TEST_DATA) + "/models/";

// log softmax of one row in float64.
std::vector<double> log_softmax(const float* logits, int64_t count) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max<double>(largest, logits[i]);
  for (int64_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
  std::vector<double> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = logits[i] - largest - std::log(sum);
  return out;
}

TEST(Evaluate, PerplexityEqualsTransformersLogits) {
  for (const char* name : {"llama_gqa_tied", "stories260K"}) {
    const std::string path = kModels + name + "/logits.safetensors";
    const SafetensorsFile file(path);
    const TensorView& view = file.at("logits");
    const std::vector<float> logits = view.to_f32();
    const TokenWindows windows = load_token_windows(path, nullptr, {});
    const int64_t t = view.shape[1], vocab = view.shape[2];
    std::vector<double> means;
    for (int64_t w = 0; w < view.shape[0]; ++w) {
      double sum = 0;
      for (int64_t i = 0; i + 1 < t; ++i) {
        sum -= log_softmax(logits.data() + (w * t + i) * vocab, vocab)[windows.window(w)[i + 1]];
      }
      means.push_back(sum / (t - 1));
    }
    const double nll = (means[0] + means[1]) / 2, stderr_ = std::abs(means[0] - means[1]) / 2;
    const EvalResult result = evaluate(DecoderModel(kModels + name), windows, nullptr);
    // Logits are right to 1e-4 and the mean of their errors is smaller.
    EXPECT_NEAR(result.nll, nll, 1e-5) << name;
    EXPECT_NEAR(result.nll_stderr, stderr_, 1e-5) << name;
    EXPECT_NEAR(result.perplexity, std::exp(nll), 2e-5 * std::exp(nll)) << name;
    EXPECT_EQ(result.tokens, 2 * (t - 1));
    EXPECT_FALSE(result.has_reference);
  }
}

TEST(Evaluate, ReferenceEqualToModelHasNoDivergence) {
  const DecoderModel model(kModels + "llama_gqa_tied");
  const TokenWindows windows =
      load_token_windows(kModels + "llama_gqa_tied/logits.safetensors", nullptr, {});
  const EvalResult result = evaluate(model, windows, &model);
  EXPECT_EQ(result.kl_mean, 0.0);
  EXPECT_EQ(result.top1_agreement, 1.0);
  EXPECT_EQ(result.reference_perplexity, result.perplexity);
}

TEST(Evaluate, RejectsWindowsThatCannotBeEvaluated) {
  const DecoderModel model(kModels + "stories260K");
  TokenWindows windows;
  windows.origin = "ids";
  windows.num_windows = 1;
  windows.length = 1;
  windows.ids = {1};
  EXPECT_THROW(evaluate(model, windows, nullptr), UsageError);
  windows.length = 600;
  windows.ids.assign(600, 1);
  EXPECT_THROW(evaluate(model, windows, nullptr), UsageError);
  windows.length = 2;
  windows.ids = {1, 2};
  const DecoderModel other(kModels + "llama_gqa_tied");
  EXPECT_THROW(evaluate(model, windows, &other), UsageError);  // another vocabulary
  const EvalResult one = evaluate(model, windows, nullptr);
  EXPECT_TRUE(std::isnan(one.nll_stderr));
}

}  // namespace
}  // namespace curvq
