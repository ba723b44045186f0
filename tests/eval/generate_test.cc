#include "curvq/eval/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "curvq/core/error.h"
#include "curvq/io/json.h"
#include "curvq/nn/decoder.h"

namespace curvq {
namespace {

const std::string kStories = std::string(CURVQ_TEST_DATA) + "/models/stories260K";

std::shared_ptr<const DecoderModel> stories() { return std::make_shared<DecoderModel>(kStories); }

TEST(Generate, GreedyTextEqualsTheKnownOne) {
  const Json reference = read_json_file(kStories + "/greedy_reference.json");
  const std::vector<int32_t> expected = reference.at("greedy_ids");
  GenerateOptions options;
  options.max_new_tokens = static_cast<int64_t>(expected.size()) - 1;
  std::vector<int32_t> ids = reference.at("prompt_ids");
  const std::vector<int32_t> streamed_from = ids;
  std::vector<int32_t> streamed = ids;
  const GenerateResult result =
      generate(stories(), ids, options, [&](int32_t id) { streamed.push_back(id); });
  ids.insert(ids.end(), result.ids.begin(), result.ids.end());
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(streamed, expected);
}

TEST(Generate, SamplingFollowsTheModelsDistribution) {
  // First token behind the prompt, 2,000 seeds: each frequency within 5 standard errors.
  const auto model = stories();
  DecoderSession session(model);
  const torch::Tensor p = torch::softmax(session.append({1, 403, 407}) / 1.5, -1);
  const int draws = 2000;
  std::vector<int> counts(p.size(0), 0);
  GenerateOptions options;
  options.max_new_tokens = 1;
  options.temperature = 1.5;
  for (int seed = 0; seed < draws; ++seed) {
    options.seed = seed;
    ++counts[generate(model, {1, 403, 407}, options).ids.at(0)];
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = p[i].item<double>();
    EXPECT_NEAR(counts[i] / double(draws), expected,
                5 * std::sqrt(expected * (1 - expected) / draws) + 1e-3)
        << i;
  }
}

TEST(Generate, TinyTopPIsGreedyAndSeedsRepeat) {
  GenerateOptions greedy, tiny;
  greedy.max_new_tokens = tiny.max_new_tokens = 30;
  tiny.temperature = 1;
  tiny.top_p = 1e-9;
  const auto model = stories();
  EXPECT_EQ(generate(model, {1}, greedy).ids, generate(model, {1}, tiny).ids);
  tiny.top_p = 0.9;
  EXPECT_EQ(generate(model, {1}, tiny).ids, generate(model, {1}, tiny).ids);
  GenerateOptions other = tiny;
  other.seed = 1;
  EXPECT_NE(generate(model, {1}, other).ids, generate(model, {1}, tiny).ids);
}

TEST(Generate, StopsAtAStopIdAndAtTheLastPosition) {
  const auto model = stories();
  GenerateOptions options;
  options.max_new_tokens = 10000;
  EXPECT_EQ(generate(model, {1}, options).ids.size(),
            512u);  // 511 more fit behind the prompt, one comes of the last
  options.stop_ids = {261};
  const GenerateResult result = generate(model, {1}, options);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.ids, (std::vector<int32_t>{403, 407}));
}

TEST(Generate, RejectsBadInput) {
  const auto model = stories();
  EXPECT_THROW(generate(model, {}, {}), UsageError);
  EXPECT_THROW(generate(model, {512}, {}), UsageError);
  EXPECT_THROW(generate(model, {-1}, {}), UsageError);
  EXPECT_THROW(generate(model, std::vector<int32_t>(513, 1), {}), UsageError);
  for (const auto& change : std::vector<std::function<void(GenerateOptions&)>>{
           [](GenerateOptions& o) { o.temperature = -1; },
           [](GenerateOptions& o) { o.temperature = NAN; }, [](GenerateOptions& o) { o.top_p = 0; },
           [](GenerateOptions& o) { o.top_p = 1.5; },
           [](GenerateOptions& o) { o.max_new_tokens = 0; }}) {
    GenerateOptions options;
    change(options);
    EXPECT_THROW(generate(model, {1}, options), UsageError);
  }
}

}  // namespace
}  // namespace curvq
