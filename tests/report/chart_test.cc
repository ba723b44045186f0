#include "curvq/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "curvq/report/page.h"

namespace curvq {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// The numbers of an attribute, in order.
std::vector<double> numbers(const std::string& svg, const std::string& mark,
                            const std::string& attribute) {
  std::vector<double> found;
  const std::regex pattern("<rect class=\"" + mark + "\"[^>]* " + attribute + "=\"([-0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), pattern), end; it != end; ++it)
    found.push_back(std::stod((*it)[1]));
  return found;
}

TEST(Chart, TicksAreRoundAndWithin) {
  EXPECT_EQ(round_ticks(0, 10), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(-1, 1), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const double scale : {1e-12, 0.37, 1.0, 8.1e7}) {
    for (const double high : {1.1, 2.3, 4.9, 9.99}) {
      const auto ticks = round_ticks(-scale, high * scale);
      EXPECT_GE(ticks.size(), 3u);
      EXPECT_LE(ticks.size(), 8u);
      EXPECT_GE(ticks.front(), -scale * (1 + 1e-9));
      EXPECT_LE(ticks.back(), high * scale * (1 + 1e-9));
    }
  }
}

TEST(Chart, BarsAreAsLongAsTheirValues) {
  const std::string svg =
      BarChart{
          "traces", "trace", {{"a", 4, 0}, {"b", -2, 0.5}, {"c", std::nan(""), 0}, {"d", 1, 0}}}
          .svg();
  const auto widths = numbers(svg, "bar", "width");
  ASSERT_EQ(widths.size(), 3u);  // the one that is not finite is left out
  // Coordinates have two decimals.
  EXPECT_NEAR(widths[0], 2 * widths[1], 0.03);
  EXPECT_NEAR(widths[0], 4 * widths[2], 0.05);
  const auto begins = numbers(svg, "bar", "x");
  EXPECT_NEAR(begins[1] + widths[1], begins[0], 0.02);  // negative ones end at zero
  EXPECT_EQ(count(svg, "class=\"whisker\""), 1);
  EXPECT_NE(svg.find("<title>b: -2.000 \u00b1 0.50</title>"), std::string::npos);
}

TEST(Chart, BarsOfManyDecadesAreLogarithmic) {
  const std::string svg = BarChart{"t", "v", {{"a", 1e-3, 0}, {"b", 1, 0}, {"c", 1e3, 0}}}.svg();
  const auto widths = numbers(svg, "bar", "width");
  EXPECT_NEAR(widths[0], 0, 0.02);
  EXPECT_NEAR(widths[2], 2 * widths[1], 0.03);
}

TEST(Chart, ALineGoesThroughItsPointsWithItsBandAround) {
  const std::string svg =
      LineChart{"t",
                "x",
                "y",
                false,
                {{"first", {0, 1, 2}, {0, 2, 1}, {1, 1, 1}}, {"second", {0, 2}, {3, 3}, {}}}}
          .svg();
  EXPECT_EQ(count(svg, "class=\"line\""), 2);
  EXPECT_EQ(count(svg, "class=\"band\""), 1);
  // -1 to 3 over 278 pixels up from 330; 0 to 2 over 790 from 90.
  EXPECT_NE(svg.find("d=\"M90.00 260.50L485.00 121.50L880.00 191.00\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("d=\"M90.00 191.00L485.00 52.00L880.00 121.50"
                     "L880.00 260.50L485.00 191.00L90.00 330.00Z\""),
            std::string::npos);
}

TEST(Chart, ALogarithmicAxisPutsZerosAtTheBottom) {
  const std::string svg = LineChart{"t", "x", "y", true, {{"l", {0, 1, 2}, {1, 0, 100}, {}}}}.svg();
  EXPECT_NE(svg.find("d=\"M90.00 330.00L485.00 330.00L880.00 52.00\""), std::string::npos) << svg;
}

TEST(Chart, AHeatMapHasACellForEachPairAndDarkerMeansLarger) {
  const std::string svg = HeatMap{"blocks", "norm", {"a", "b"}, {{1, 0.1}, {0.1, 0.001}}}.svg();
  EXPECT_EQ(count(svg, "class=\"cell\""), 4);
  EXPECT_NE(svg.find("fill=\"#08306b\"><title>a, a: 1.000</title>"), std::string::npos);
  EXPECT_NE(svg.find("fill=\"#f7fbff\"><title>b, b: 0.001000</title>"), std::string::npos);
  EXPECT_EQ(count(svg, ">1  a</text>"), 1);
}

TEST(Chart, NothingFiniteIsSaid) {
  const double nan = std::nan("");
  EXPECT_NE((BarChart{"t", "v", {{"a", nan, 0}}}.svg().find("nothing to draw")), std::string::npos);
  EXPECT_NE((LineChart{"t", "x", "y", false, {}}.svg().find("nothing to draw")), std::string::npos);
  EXPECT_NE((HeatMap{"t", "v", {"a"}, {{0}}}.svg().find("nothing to draw")), std::string::npos);
  // One value is no range, but is drawn.
  EXPECT_EQ(count(LineChart{"t", "x", "y", false, {{"l", {1}, {5}, {0}}}}.svg(), "nan"), 0);
  EXPECT_EQ(count(BarChart{"t", "v", {{"a", 0, 0}}}.svg(), "nan"), 0);
}

TEST(HtmlPage, EscapesTextAndNeedsNothingElse) {
  HtmlPage page("a <b> & \"c\"");
  page.add_heading("x < y");
  page.add_text("1 > 0");
  page.add_facts({{"file", "<script>"}});
  page.add_chart(BarChart{"<t>", "v", {{"a&b", 1, 0}}}.svg());
  const std::string html = page.str();
  EXPECT_NE(html.find("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"), std::string::npos);
  EXPECT_NE(html.find("<h2>x &lt; y</h2>"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_NE(html.find("a&amp;b"), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("href="), std::string::npos);
}

}  // namespace
}  // namespace curvq
