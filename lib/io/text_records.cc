#include "io/text_records.h"

#include <algorithm>
#include <optional>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/json.h"
#include "io/text.h"

namespace curvq::io {

void for_each_line(const std::string& content, const std::string& path,
                   const std::function<bool(const std::string&, const std::string&)>& visit) {
  int64_t line_number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!visit(line, format("%s line %lld", path.c_str(), static_cast<long long>(line_number))))
      return;
  }
}

void for_each_record(const std::string& content, const std::string& path,
                     const std::function<bool(const std::string&, const std::string&)>& visit) {
  for_each_line(content, path, [&](const std::string& line, const std::string& origin) {
    const Json record = parse_json(line, origin);
    if (!record.is_object() || !record.contains("text") || !record.at("text").is_string()) {
      throw FormatError(origin + ": must be an object with a string \"text\"");
    }
    return visit(record.at("text").get_ref<const std::string&>(), origin);
  });
}

void require_utf8(const std::string& text, const std::string& origin) {
  const std::optional<size_t> bad = find_invalid_utf8(text);
  if (!bad) return;
  throw FormatError(format("%s: is not UTF-8 at byte %zu (0x%02x); convert it to UTF-8",
                           origin.c_str(), *bad, static_cast<uint8_t>(text[*bad])));
}

}  // namespace curvq::io
