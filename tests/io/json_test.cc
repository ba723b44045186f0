#include "curvq/io/json.h"

#include <limits>

#include "io/io_testing.h"

namespace curvq {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string nested(int levels) { return std::string(levels, '[') + "1" + std::string(levels, ']'); }

TEST(ParseJson, BuildsEveryKindOfValue) {
  const std::string text =
      R"( {"a":[1,-2,3.5,true,false,null,"x\u00e9"],"b":{"c":{}},"d":[[],[{}]]} )";
  EXPECT_EQ(parse_json(text, "f"), Json::parse(text));
}

TEST(ParseJson, TakesScalars) {
  EXPECT_EQ(parse_json("7", "f"), 7);
  EXPECT_EQ(parse_json("\"s\"", "f"), "s");
}

TEST(ParseJson, SyntaxErrorNamesOriginAndPosition) {
  EXPECT_ERROR(
      parse_json("{\"a\": 1,\n \"b\": oops}", "config.json"), FormatError,
      AllOf(HasSubstr("config.json"), HasSubstr("line 2, column 7"), HasSubstr("near: oops")));
  EXPECT_ERROR(parse_json("", "f"), FormatError, HasSubstr("the end"));
  EXPECT_ERROR(parse_json("{\"a\": [1, 2", "f"), FormatError, HasSubstr("the end"));
  EXPECT_ERROR(parse_json("{} {}", "f"), FormatError, HasSubstr("line 1, column 4"));
  EXPECT_ERROR(parse_json("[1,]", "f"), FormatError, HasSubstr("not valid JSON"));
}

TEST(ParseJson, RejectsWhatIsNotText) {
  EXPECT_ERROR(parse_json("[\"\xff\"]", "f"), FormatError, HasSubstr("not valid JSON"));
  EXPECT_ERROR(parse_json("[\"\\ud800\"]", "f"), FormatError, HasSubstr("not valid JSON"));
  EXPECT_ERROR(parse_json(std::string("{}\0{}", 5), "f"), FormatError, HasSubstr("zero byte"));
}

TEST(ParseJson, RejectsNumbersThatOverflow) {
  EXPECT_ERROR(parse_json("[1e999]", "f"), FormatError, HasSubstr("number out of range"));
}

TEST(ParseJson, DepthIsLimitedTo64) {
  EXPECT_EQ(parse_json(nested(64), "f"), Json::parse(nested(64)));
  EXPECT_ERROR(parse_json(nested(65), "f"), FormatError, HasSubstr("deeper than 64"));
  EXPECT_ERROR(parse_json(std::string(1 << 20, '['), "f"), FormatError,
               HasSubstr("deeper than 64"));
}

TEST(ParseJson, RejectsDuplicateKeysOfOneObjectOnly) {
  EXPECT_ERROR(parse_json(R"({"a":1,"b":{"k":1,"k":2}})", "f"), FormatError,
               HasSubstr("\"k\" occurs twice"));
  EXPECT_EQ(parse_json(R"({"a":{"k":1},"b":{"k":2}})", "f")["b"]["k"], 2);
}

TEST(JsonAccess, ReturnsValuesAndFallbacks) {
  const Json json = parse_json(R"({"i":-3,"x":1.5,"b":true,"s":"t","n":null})", "f");
  EXPECT_EQ(json_int(json, "i", "f"), -3);
  EXPECT_EQ(json_int(json, "n", 4, "f"), 4);
  EXPECT_EQ(json_int(json, "absent", 5, "f"), 5);
  EXPECT_EQ(json_number(json, "x", 0, "f"), 1.5);
  EXPECT_EQ(json_number(json, "i", 0, "f"), -3);
  EXPECT_EQ(json_number(json, "n", 2.5, "f"), 2.5);
  EXPECT_TRUE(json_bool(json, "b", false, "f"));
  EXPECT_TRUE(json_bool(json, "n", true, "f"));
  EXPECT_EQ(json_string(json, "s", "", "f"), "t");
  EXPECT_EQ(json_string(json, "absent", "d", "f"), "d");
}

TEST(JsonAccess, WrongTypesNameOriginKeyAndValue) {
  const Json json =
      parse_json(R"({"i":1.5,"u":9223372036854775808,"b":1,"s":["x"],"n":null})", "f");
  EXPECT_ERROR(json_int(json, "i", 0, "conf"), FormatError,
               AllOf(HasSubstr("conf"), HasSubstr("\"i\""), HasSubstr("1.5")));
  EXPECT_ERROR(json_int(json, "u", "f"), FormatError, HasSubstr("9223372036854775808"));
  EXPECT_ERROR(json_int(json, "b2", "f"), FormatError, HasSubstr("\"b2\" is missing"));
  EXPECT_ERROR(json_int(json, "n", "f"), FormatError, HasSubstr("is missing"));
  EXPECT_ERROR(json_bool(json, "b", true, "f"), FormatError, HasSubstr("true or false"));
  EXPECT_ERROR(json_string(json, "s", "", "f"), FormatError, HasSubstr("[\"x\"]"));
  EXPECT_ERROR(json_number(json, "s", 0, "f"), FormatError, HasSubstr("a number"));
  EXPECT_ERROR(json_int(Json::array(), "i", 0, "f"), FormatError, HasSubstr("found array"));
}

TEST(DumpJson, KeepsOrderAndWritesSpecialNumbersAsStrings) {
  OrderedJson value;
  value["z"] = std::numeric_limits<double>::quiet_NaN();
  value["a"] = {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                0.5};
  value["m"]["x"] = 1;
  EXPECT_EQ(dump_json(value),
            "{\n  \"z\": \"nan\",\n  \"a\": [\n    \"inf\",\n    \"-inf\",\n    0.5\n  ],\n"
            "  \"m\": {\n    \"x\": 1\n  }\n}\n");
}

TEST(DumpJson, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump_json(OrderedJson("a\xff")), "\"a\xEF\xBF\xBD\"\n");
}

TEST(ReadJsonFile, NamesTheFile) {
  testing::TemporaryDirectory directory;
  testing::put(directory / "a.json", "{\"k\": tru}");
  EXPECT_ERROR(read_json_file(directory / "a.json"), FormatError, HasSubstr(directory / "a.json"));
  EXPECT_ERROR(read_json_file(directory / "b.json"), ResourceError,
               AllOf(HasSubstr(directory / "b.json"), HasSubstr("no such file")));
}

}  // namespace
}  // namespace curvq
