#include "io/module_pattern.h"

#include "io/io_testing.h"

namespace curvq::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MatchModule, NamesMatchWhole) {
  EXPECT_EQ(match_module("lm_head", "lm_head"), ModuleMatch::kName);
  EXPECT_EQ(match_module("lm_head", "model.lm_head"), ModuleMatch::kNone);
  EXPECT_EQ(match_module("layers.1", "layers.10"), ModuleMatch::kNone);
  EXPECT_EQ(match_module("layers.*", "layers.1"), ModuleMatch::kNone);
}

TEST(MatchModule, LinearIsAClassNameAndNoOtherIs) {
  EXPECT_EQ(match_module("Linear", "a.b"), ModuleMatch::kClass);
  EXPECT_EQ(match_module("Embedding", "a.b"), ModuleMatch::kNone);
}

// As re.match of Python 3.11 answers.
TEST(MatchModule, ExpressionsMatchAtTheStart) {
  EXPECT_EQ(match_module("re:.*lm_head", "lm_head"), ModuleMatch::kPattern);
  EXPECT_EQ(match_module("re:.*q_proj$", "model.layers.0.self_attn.q_proj"), ModuleMatch::kPattern);
  EXPECT_EQ(match_module("re:q_proj", "model.layers.0.self_attn.q_proj"), ModuleMatch::kNone);
  EXPECT_EQ(match_module("re:model", "model.layers.0"),
            ModuleMatch::kPattern);  // not anchored there
  EXPECT_EQ(match_module("re:a|b", "cb"), ModuleMatch::kNone);
  EXPECT_EQ(match_module("re:x|model\\.layers\\.(?P<n>[0-4])\\.", "model.layers.3.mlp"),
            ModuleMatch::kPattern);
  EXPECT_EQ(match_module("re:(?!model)", "model"), ModuleMatch::kNone);
  EXPECT_EQ(match_module("re:", "anything"), ModuleMatch::kPattern);
  EXPECT_EQ(match_module("re:m.d",
                         "m\xC3\xA9"
                         "d"),
            ModuleMatch::kPattern);  // characters, not bytes
}

TEST(MatchModule, BadExpressionsAreNamed) {
  EXPECT_ERROR(match_module("re:a(b", "ab"), FormatError,
               AllOf(HasSubstr("\"a(b\""), HasSubstr("not valid at character 4")));
  EXPECT_ERROR(check_module_pattern("re:*", "config.json: ignore"), FormatError,
               HasSubstr("config.json: ignore: regular expression"));
  EXPECT_ERROR(check_module_pattern("re:\xff", "c"), FormatError, HasSubstr("not valid"));
  EXPECT_ERROR(check_module_pattern("re:" + std::string(20000, 'a'), "c"), FormatError,
               HasSubstr("20000 bytes"));
  EXPECT_NO_THROW(check_module_pattern("a(b", "c"));
}

TEST(MatchModule, ExplodingExpressionStops) {
  EXPECT_ERROR(match_module("re:(a+)+$", std::string(60, 'a') + "b"), FormatError,
               HasSubstr("takes too long"));
}

}  // namespace
}  // namespace curvq::io
