#include "curvq/formats/scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "curvq/core/error.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string usage_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SchemeTest, NamesRoundTrip) {
  for (const char* name : {"nvfp4", "mxfp4", "int4", "int8", "fp8"}) {
    EXPECT_EQ(Scheme::parse(name).name(), name);
    EXPECT_NO_THROW(Scheme::parse(name).validate());
  }
  EXPECT_EQ(Scheme::parse("int4").group_size, 128);
  EXPECT_THAT(usage_error([] { Scheme::parse("int3"); }),
              AllOf(HasSubstr("'int3'"), HasSubstr("nvfp4, mxfp4, int4, int8, fp8")));
}

TEST(SchemeTest, RuleNamesRoundTrip) {
  for (const char* name :
       {"curvq", "compressed-tensors", "modelopt", "torchao", "llama.cpp", "four-over-six"}) {
    EXPECT_EQ(scale_rule_name(parse_scale_rule(name)), name);
  }
  for (const char* name : {"floor", "even", "ceil", "rceil"}) {
    EXPECT_EQ(mx_rule_name(parse_mx_rule(name)), name);
  }
  EXPECT_THAT(usage_error([] { parse_scale_rule("ct"); }), HasSubstr("compressed-tensors"));
  EXPECT_THAT(usage_error([] { parse_mx_rule("up"); }), HasSubstr("floor, even, ceil, rceil"));
}

TEST(SchemeTest, Describe) {
  EXPECT_EQ(Scheme::nvfp4().describe(), "nvfp4");
  EXPECT_EQ(Scheme::int4(64, false).describe(), "int4 g64 asymmetric");
  EXPECT_EQ(Scheme::int8().describe(), "int8 channel");
  Scheme scheme = Scheme::mxfp4();
  scheme.mx_rule = MxRule::kRceil;
  scheme.rule = ScaleRule::kTorchAo;
  EXPECT_EQ(scheme.describe(), "mxfp4 rceil torchao");
}

TEST(SchemeTest, ValidateNamesFieldAndValue) {
  const auto error_of = [](Scheme scheme, const std::function<void(Scheme&)>& change) {
    change(scheme);
    return usage_error([&] { scheme.validate(); });
  };
  EXPECT_THAT(error_of(Scheme::int4(), [](Scheme& s) { s.bits = 3; }), HasSubstr("bits 3"));
  EXPECT_THAT(error_of(Scheme::nvfp4(), [](Scheme& s) { s.bits = 8; }), HasSubstr("bits 8"));
  EXPECT_THAT(error_of(Scheme::fp8(), [](Scheme& s) { s.bits = 4; }), HasSubstr("bits 4"));
  EXPECT_THAT(error_of(Scheme::nvfp4(), [](Scheme& s) { s.group_size = 32; }),
              AllOf(HasSubstr("group_size 32"), HasSubstr("16")));
  EXPECT_THAT(error_of(Scheme::mxfp4(), [](Scheme& s) { s.group_size = 16; }),
              AllOf(HasSubstr("group_size 16"), HasSubstr("32")));
  EXPECT_THAT(error_of(Scheme::int4(), [](Scheme& s) { s.group_size = -1; }),
              HasSubstr("group_size -1"));
  EXPECT_THAT(error_of(Scheme::nvfp4(), [](Scheme& s) { s.symmetric = false; }),
              HasSubstr("symmetric"));
  EXPECT_THAT(error_of(Scheme::nvfp4(), [](Scheme& s) { s.scale_type = ScaleType::kFloat; }),
              HasSubstr("scale_type"));
  EXPECT_THAT(error_of(Scheme::int4(), [](Scheme& s) { s.scale_type = ScaleType::kE8M0; }),
              HasSubstr("scale_type"));
  EXPECT_THAT(error_of(Scheme::int4(), [](Scheme& s) { s.scale_dtype = DType::kF64; }),
              HasSubstr("scale_dtype F64"));
  EXPECT_THAT(error_of(Scheme::int4(), [](Scheme& s) { s.source_dtype = DType::kI8; }),
              HasSubstr("source_dtype I8"));
}

TEST(SchemeTest, Groups) {
  EXPECT_EQ(Scheme::nvfp4().num_groups(64), 4);
  EXPECT_EQ(Scheme::int8().num_groups(172), 1);
  EXPECT_EQ(Scheme::int4(64).group_of(130), 2);
  EXPECT_EQ(Scheme::int8().group_of(130), 0);
  EXPECT_TRUE(Scheme::int8().divides(172));
  EXPECT_FALSE(Scheme::mxfp4().divides(172));
  // 576 = 2^6 * 9.
  EXPECT_THAT(usage_error([] { Scheme::int4(128).num_groups(576); }),
              AllOf(HasSubstr("128"), HasSubstr("576"), HasSubstr("64, 32, 16")));
  EXPECT_THAT(usage_error([] { Scheme::int4(128).num_groups(172); }), HasSubstr("0 gives"));
  EXPECT_THAT(usage_error([] { Scheme::nvfp4().num_groups(172); }),
              AllOf(HasSubstr("16"), HasSubstr("172"), HasSubstr("int8")));
}

TEST(SchemeTest, CodeRange) {
  EXPECT_EQ(Scheme::int4().min_code(), -8);
  EXPECT_EQ(Scheme::int4().max_code(), 7);
  EXPECT_EQ(Scheme::int8().min_code(), -128);
  EXPECT_EQ(Scheme::int8().max_code(), 127);
}

TEST(SchemeTest, StoredBytes) {
  EXPECT_EQ(Scheme::nvfp4().stored_bytes(10, 64), 10 * 32 + 10 * 4 + 4);
  EXPECT_EQ(Scheme::mxfp4().stored_bytes(10, 64), 10 * 32 + 10 * 2);
  Scheme scheme = Scheme::int4(64);
  EXPECT_EQ(scheme.stored_bytes(10, 128), 10 * 64 + 10 * 2 * 4);
  scheme.scale_dtype = DType::kBF16;
  EXPECT_EQ(scheme.stored_bytes(10, 128), 10 * 64 + 10 * 2 * 2);
  // 10 zero points of 4 bits fill two 32-bit words a column.
  EXPECT_EQ(Scheme::int4(64, false).stored_bytes(10, 128), 10 * 64 + 10 * 2 * 4 + 2 * 2 * 4);
  EXPECT_EQ(Scheme::int8(0, false).stored_bytes(10, 128), 10 * 128 + 10 * 4 + 3 * 4);
  // 175 nibbles fill 22 words.
  EXPECT_EQ(Scheme::int4(0).stored_bytes(3, 175), 3 * 22 * 4 + 3 * 4);
  EXPECT_EQ(Scheme::fp8().stored_bytes(3, 175), 3 * 175 + 3 * 4);
  EXPECT_DOUBLE_EQ(Scheme::mxfp4().bits_per_weight(10, 64), 4.25);
}

}  // namespace
}  // namespace curvq
