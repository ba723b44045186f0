// Tables in plain text.
#pragma once

#include <string>
#include <vector>

namespace curvq {

// Columns padded to their widest cell with two spaces between them; no trailing space.
class Table {
 public:
  enum class Align { kLeft, kRight };  // numbers go to the right
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  // One cell a column, else std::logic_error. Cells are UTF-8; a code point counts as one wide.
  void add_row(std::vector<std::string> cells);
  // A line of dashes below the rows so far.
  void add_rule();
  size_t num_rows() const { return num_rows_; }

  // The whole table, each line ending in a newline; titles in bold (ANSI) if `color`.
  std::string str(bool color = false) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty one is a rule
  size_t num_rows_ = 0;
};

}  // namespace curvq
