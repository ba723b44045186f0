#include "curvq/report/table.h"

#include <algorithm>
#include <stdexcept>

namespace curvq {
namespace {

size_t width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string padded(const std::string& text, size_t to, Table::Align align) {
  const std::string spaces(to - width(text), ' ');
  return align == Table::Align::kRight ? spaces + text : text + spaces;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.empty() || cells.size() != columns_.size()) {
    throw std::logic_error("a table row does not fit its columns");
  }
  rows_.push_back(std::move(cells));
  ++num_rows_;
}

void Table::add_rule() { rows_.emplace_back(); }

std::string Table::str(bool color) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(width(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto line = [&](auto&& cell) {
    std::string out;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) out += "  ";
      out += padded(cell(i), widths[i], columns_[i].align);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  const std::string titles = line([&](size_t i) { return columns_[i].title; });
  std::string out = color ? "\033[1m" + titles + "\033[0m\n" : titles + "\n";
  for (const auto& row : rows_) {
    out +=
        line([&](size_t i) { return row.empty() ? std::string(widths[i], '-') : row[i]; }) + '\n';
  }
  return out;
}

}  // namespace curvq
