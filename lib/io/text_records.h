// The lines of files of text.
#pragma once

#include <functional>
#include <string>

namespace curvq::io {

// Calls visit(text, its place in the file for messages) for the string `text` of each object of a
// .jsonl until it returns false. Blank lines are skipped. Throws FormatError for anything else.
void for_each_record(const std::string& content, const std::string& path,
                     const std::function<bool(const std::string&, const std::string&)>& visit);

// The same for each line that is not blank, as it is.
void for_each_line(const std::string& content, const std::string& path,
                   const std::function<bool(const std::string&, const std::string&)>& visit);

// Throws FormatError naming the first byte that is not UTF-8.
void require_utf8(const std::string& text, const std::string& origin);

}  // namespace curvq::io
