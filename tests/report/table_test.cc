#include "curvq/report/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace curvq {
namespace {

using Align = Table::Align;

TEST(Table, AlignsNumbersRightAndLeavesNoTrailingSpace) {
  Table table({{"name"}, {"bytes", Align::kRight}, {"format"}});
  table.add_row({"a", "1", "nvfp4"});
  table.add_rule();
  table.add_row({"longer", "12345678", ""});
  EXPECT_EQ(table.str(),
            "name       bytes  format\n"
            "a              1  nvfp4\n"
            "------  --------  ------\n"
            "longer  12345678\n");
  EXPECT_EQ(table.num_rows(), 2u);
}

TEST(Table, CountsCodePointsNotBytes) {
  Table table({{"x"}, {"y", Align::kRight}});
  table.add_row({"\xC3\xA9\xE2\x82\xAC", "1"});  // two characters in five bytes
  table.add_row({"abc", "22"});
  EXPECT_EQ(table.str(), "x     y\n\xC3\xA9\xE2\x82\xAC    1\nabc  22\n");
}

TEST(Table, TitlesAreBoldInColor) {
  Table table({{"x"}});
  table.add_row({"1"});
  EXPECT_EQ(table.str(true), "\033[1mx\033[0m\n1\n");
}

TEST(Table, RejectsRowsThatDoNotFit) {
  Table table({{"x"}, {"y"}});
  EXPECT_THROW(table.add_row({"1"}), std::logic_error);
  EXPECT_THROW(table.add_row({}), std::logic_error);
}

}  // namespace
}  // namespace curvq
