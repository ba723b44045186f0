#include "curvq/compress/layer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "curvq/core/error.h"

namespace curvq {
namespace {

using testing::HasSubstr;

std::vector<LayerShape> layers() {
  return {{"model.layers.0.self_attn.q_proj", 64, 64, DType::kF32},
          {"model.layers.0.mlp.down_proj", 64, 172, DType::kBF16},
          {"model.layers.1.self_attn.q_proj", 64, 64, DType::kF16}};
}

std::string usage_error(const PlanOptions& options) {
  try {
    plan_layers(layers(), options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanLayers, IndivisibleLayerIsAnErrorThatNamesWhatDivides) {
  PlanOptions options;
  options.scheme = Scheme::int4(64);
  EXPECT_THAT(
      usage_error(options),
      HasSubstr("model.layers.0.mlp.down_proj: group size 64 does not divide its 172 inputs "
                "(none of 16, 32, 64, 128 divides)"));
  options.scheme = Scheme::int4(128);
  EXPECT_THAT(
      usage_error(options),
      HasSubstr("q_proj: group size 128 does not divide its 64 inputs (16, 32, 64 would divide)"));
}

TEST(PlanLayers, IndivisibleLayerCanBeKeptOrGetWholeRows) {
  PlanOptions options;
  options.scheme = Scheme::int4(64);
  options.on_indivisible = OnIndivisible::kKeep;
  EXPECT_FALSE(plan_layers(layers(), options)[1].scheme);
  options.on_indivisible = OnIndivisible::kChannel;
  EXPECT_EQ(plan_layers(layers(), options)[1].scheme->group_size, 0);
  options.scheme = Scheme::nvfp4();
  EXPECT_THAT(usage_error(options), HasSubstr("nvfp4 has no whole-row form"));
}

TEST(PlanLayers, ScalesTakeTheLayersDtype) {
  PlanOptions options;
  options.scheme = Scheme::int4(64);
  options.on_indivisible = OnIndivisible::kChannel;
  const auto plan = plan_layers(layers(), options);
  EXPECT_EQ(plan[0].scheme->scale_dtype, DType::kF32);
  EXPECT_EQ(plan[1].scheme->scale_dtype, DType::kBF16);
  EXPECT_EQ(plan[2].scheme->scale_dtype, DType::kF16);
}

TEST(PlanLayers, LastMatchingRuleWinsAndIgnoreWinsOverAll) {
  PlanOptions options;
  options.scheme = Scheme::nvfp4();
  options.on_indivisible = OnIndivisible::kKeep;
  options.rules = {
      SchemeRule::parse("*q_proj = int8", options.scheme),
      SchemeRule::parse("re:model\\.layers\\.1\\. = int4 group-size=32 symmetric=false",
                        options.scheme)};
  auto plan = plan_layers(layers(), options);
  EXPECT_EQ(plan[0].scheme->name(), "int8");
  EXPECT_EQ(plan[2].scheme->describe(), Scheme::int4(32, false).describe());
  options.ignore = {"model.layers.0.*"};
  plan = plan_layers(layers(), options);
  EXPECT_FALSE(plan[0].scheme);
  EXPECT_EQ(plan[0].reason, "ignored by 'model.layers.0.*'");
  EXPECT_TRUE(plan[2].scheme);
}

TEST(PlanLayers, PatternThatMatchesNothingIsAnError) {
  PlanOptions options;
  options.scheme = Scheme::int8();
  options.ignore = {"*vision*"};
  EXPECT_THAT(usage_error(options),
              HasSubstr("--ignore '*vision*' matches none of the 3 linear layers"));
  options.ignore = {"re:q_proj"};  // must match from the start
  EXPECT_THAT(usage_error(options), HasSubstr("matches none"));
  options.ignore = {"re:("};
  EXPECT_THAT(usage_error(options), HasSubstr("not a regular expression"));
}

TEST(PlanLayers, QuantizingNothingIsAnError) {
  PlanOptions options;
  options.scheme = Scheme::int8();
  options.ignore = {"*"};
  EXPECT_THAT(usage_error(options), HasSubstr("nothing would be quantized"));
}

TEST(SchemeRule, SaysWhatIsWrong) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"*q_proj int8", "there is no ' = '"},
           {" = int8", "the pattern is empty"},
           {"* = int4 group-size=x", "group-size 'x' is not a number"},
           {"* = int4 group", "'group' is not key=value"},
           {"* = int4 size=3", "there is no key 'size'"},
           {"* = int4 symmetric=maybe", "true or false"},
           {"* = keep x=1", "keep takes no key"}}) {
    try {
      SchemeRule::parse(text, Scheme::nvfp4());
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why)) << text;
    }
  }
  EXPECT_THROW(SchemeRule::parse("* = int5", Scheme::nvfp4()), UsageError);
}

}  // namespace
}  // namespace curvq
