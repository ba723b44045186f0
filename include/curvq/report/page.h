// Results as one HTML page that needs nothing else.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace curvq {

// A page with a title and sections one below the other; no scripts, no outside files.
class HtmlPage {
 public:
  explicit HtmlPage(std::string title) : title_(std::move(title)) {}

  void add_heading(const std::string& text);
  void add_text(const std::string& text);
  // Names and values in two columns.
  void add_facts(const std::vector<std::pair<std::string, std::string>>& facts);
  // Markup as it is, such as a chart's.
  void add_chart(const std::string& svg);

  std::string str() const;

 private:
  std::string title_, body_;
};

}  // namespace curvq
