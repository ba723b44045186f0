#include "io/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace curvq::io {
namespace {

std::string encode_utf8(uint32_t c) {
  std::string out;
  const auto add = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6), add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  }
  return out;
}

TEST(FindInvalidUtf8, AcceptsExactlyTheScalarValues) {
  for (uint32_t c = 0; c < 0x120000; ++c) {
    const bool is_scalar = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
    const auto bad = find_invalid_utf8("ab" + encode_utf8(c) + "z");
    ASSERT_EQ(!bad, is_scalar) << c;
    ASSERT_EQ(bad.value_or(2), 2u);
  }
}

TEST(FindInvalidUtf8, RejectsLongFormsLoneAndCutSequences) {
  for (const char* text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\x80", "\xFF", "\xC3",
        "\xE2\x82", "\xF0\x9F\x98", "\xC3(", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("x") + text), 1u) << text;
  }
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8(std::string_view("\0a", 2)), std::nullopt);
}

TEST(Printable, IsOneShortLine) {
  EXPECT_EQ(printable("a\nb\x1b\x7f"), "a?b??");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(printable(std::string(201, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(printable(std::string(199, 'x') + "\xC3\xA9"), std::string(199, 'x') + "...");
}

TEST(NearestNames, ListsTheClosestFirst) {
  EXPECT_EQ(nearest_names("lm_haed.weight", {"model.norm.weight", "lm_head.weight", "x"}),
            "; nearest: lm_head.weight");
  EXPECT_EQ(nearest_names("abc", {"abd", "abcd", "xbc", "acb"}), "; nearest: abcd, abd, xbc");
  EXPECT_EQ(nearest_names("something", {"entirely.different"}), "");
  EXPECT_EQ(nearest_names("", {}), "");
}

}  // namespace
}  // namespace curvq::io
