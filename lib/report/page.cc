#include "curvq/report/page.h"

#include "curvq/report/chart.h"

namespace curvq {
namespace {

constexpr char kStyle[] = R"(
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1000px;
       margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1.5em; }
dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 1em 0; overflow-x: auto; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
svg .title { font-size: 14px; font-weight: 600; fill: #222; }
svg .axis, svg .grid { stroke: #999; fill: none; } svg .grid { stroke: #e6e6e6; }
svg .bar { fill: #4c78a8; } svg .whisker { stroke: #222; stroke-width: 1.2; }
svg .line { fill: none; stroke-width: 1.8; } svg .band { opacity: 0.22; stroke: none; }
)";

}  // namespace

void HtmlPage::add_heading(const std::string& text) { body_ += "<h2>" + escaped(text) + "</h2>\n"; }

void HtmlPage::add_text(const std::string& text) { body_ += "<p>" + escaped(text) + "</p>\n"; }

void HtmlPage::add_facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<dl>\n";
  for (const auto& [name, value] : facts)
    body_ += "<dt>" + escaped(name) + "</dt><dd>" + escaped(value) + "</dd>\n";
  body_ += "</dl>\n";
}

void HtmlPage::add_chart(const std::string& svg) { body_ += "<figure>\n" + svg + "</figure>\n"; }

std::string HtmlPage::str() const {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped(title_) + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" +
         escaped(title_) + "</h1>\n" + body_ + "</body>\n</html>\n";
}

}  // namespace curvq
